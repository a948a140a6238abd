"""The report on a finished run: the use of its rollouts, predictability of waste, and a replay with other policies."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import BudgetallocError, InputError
from budgetalloc.logs.chunk import Chunk
from budgetalloc.logs.ledger import Ledger
from budgetalloc.offline.comparison import Progress
from budgetalloc.offline.parallel import Workers
from budgetalloc.policies.methods import method_of
from budgetalloc.report.findings import NAMED, worst
from budgetalloc.report.log_scan import measure
from budgetalloc.report.policy_replays import POLICIES, Replayed, joined, keep_first_steps, replay
from budgetalloc.report.waste import Waste

__all__ = ["Report", "report"]


@dataclass(frozen=True, eq=False)
class Report:
    """What `report` returns; `as_text`, `as_json` and `as_html` write it.

    Args:
        name: Name of the log.
        kind: The kind of log, such as "trl".
        waste: The use of its rollouts.
        notes: Omissions and assumptions of the reader, with their counts.
        replayed: The replay with other policies, or None.
        why_not: Why there is no replay.
        doubts: The notes about ambiguous content, such as an ambiguous column.
        texts: The text of the prompts listed, if the log has it.
        missing: Steps of the run that the log lacks, and steps of the run; zeros where that is not known.
    """

    name: str
    kind: str
    waste: Waste
    notes: dict[str, int]
    replayed: Replayed | None
    why_not: str = ""
    doubts: tuple[str, ...] = ()
    texts: Mapping[Id, str] = field(default_factory=dict)
    missing: tuple[int, int] = (0, 0)


def report(
    source: Any,
    *,
    policies: Sequence[str] = POLICIES,
    seeds: Iterable[int] = range(5),
    steps: int | None = None,
    reward_range: tuple[float, float] | None = None,
    workers: Workers = None,
    watch: Callable[[Iterable[Chunk]], Iterable[Chunk]] | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Report:
    """Reads the log of a finished run and reports the use of its rollouts.

    Args:
        source: A path to any supported log (see `budgetalloc.logs.reader`), an open `LogStream`, or a `Ledger`.
        policies: Names of `budgetalloc.policies.methods.METHODS` to replay on the log; the others are compared with the
            first. Empty: no replay.
        seeds: Seeds of the replays.
        steps: Steps of each replay, at least 1. Left out: as many as the log can answer, or fewer if that would take
            more than about a minute.
        reward_range: The rewards that stand for failure and success. Left out: the range that the log has, else 0 and
            1, or the lowest and highest reward of the log if rewards lie outside [0, 1], with a note.
        workers: Processes for the replays, or "ray"; by default one process for each core.
        watch: A function that is given the chunks of the log and passes them on, such as a progress bar.
        progress: Called with the replays ended and the replays in all.
        reading: Passed on to `open_log` with a path, such as `prompt_id="id"`.

    Raises:
        InputError: the log has no rewards, or a policy is unknown.

    >>> rewards_R = np.array([0, 0, 0, 0, 0, 1, 0, 1] * 4)
    >>> log = Ledger(
    ...     step_R=np.repeat(np.arange(4), 8), ids_R=(["a"] * 4 + ["b"] * 4) * 4, rewards_R=rewards_R,
    ...     lengths_R=np.full(32, 10), predicted_R=np.full(32, 0.5), counts_R=np.full(32, 4))
    >>> from budgetalloc.report.findings import headline
    >>> print(headline(report(log, policies=()).waste))
    50.0 % of the rollouts gave no gradient under a group baseline: 50.0 % in groups that all failed.
    """
    for policy in policies:
        method_of(policy)  # raises for an unknown name before the log is read
    chunks = _chunks(source, reading)
    held: list[Chunk] = []
    seen, guessed = [0.0, 1.0], False

    def scan(reward_range: tuple[float, float] | None) -> Waste:
        passing = _note_extremes(watch(chunks) if watch else chunks, seen)
        return measure(keep_first_steps(passing, held), reward_range=reward_range)

    try:
        waste = scan(reward_range)
    except InputError:
        if reward_range is not None or seen == [0.0, 1.0] or iter(chunks) is chunks:
            raise
        for _ in _note_extremes(chunks, seen):  # rewards outside [0, 1]: find their range in one pass, then start again
            pass
        reward_range, guessed = (seen[0], seen[1]), True
        waste = scan(reward_range)
    read = getattr(chunks, "notes", {})
    notes = dict(read)
    if guessed:
        notes[f"rewards from {seen[0]:g} to {seen[1]:g} taken as the range from failure to success"] = waste.rollouts
    replayed, why_not = None, "no policy was named"
    if policies:
        try:
            log, own = joined(held, reward_range), list(seeds)
            replayed = replay(log, policies, waste, seeds=own, steps=steps, workers=workers, progress=progress)
            why_not = ""
        except (BudgetallocError, ImportError) as error:  # the rest of the report stands
            why_not = str(error)
    known = getattr(chunks, "texts", None)
    return Report(
        name=str(getattr(chunks, "path", None) or "a log in memory"),
        kind=getattr(chunks, "kind", "ledger"),
        waste=waste,
        notes=notes,
        replayed=replayed,
        why_not=why_not,
        doubts=tuple(getattr(read, "doubts", ())),
        texts={} if known is None else known(row["id"] for row in worst(waste, {}, NAMED)),
        missing=getattr(read, "missing", (0, 0)),
    )


def _chunks(source: Any, reading: Mapping[str, Any]) -> Iterable[Chunk]:
    if isinstance(source, Ledger):
        return [source]
    if isinstance(source, (str, os.PathLike)) or hasattr(source, "column_names"):
        from budgetalloc.logs.reader import open_log

        return open_log(source, **reading)
    return cast(Iterable[Chunk], source)


def _note_extremes(chunks: Iterable[Chunk], seen: list[float]) -> Iterator[Chunk]:
    """The chunks; `seen` becomes the lowest and the highest reward so far, 0 and 1 included."""
    for chunk in chunks:
        rewards_R = np.asarray(chunk.rewards_R)[~np.isnan(chunk.rewards_R)]
        seen[:] = float(rewards_R.min(initial=seen[0])), float(rewards_R.max(initial=seen[1]))
        yield chunk
