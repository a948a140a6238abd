"""The report on a finished run: the use of its rollouts, predictability of waste, and a replay with
other policies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import BudgetallocError, InputError
from budgetalloc.logs.constant_scores import constant_scores
from budgetalloc.logs.ledger import Ledger, read_log
from budgetalloc.methods.table import method_of
from budgetalloc.offline.comparison import Progress
from budgetalloc.offline.parallel import Workers
from budgetalloc.report.findings import NAMED, worst
from budgetalloc.report.log_scan import measure
from budgetalloc.report.policy_replays import POLICIES, Replayed, first_steps, replay, unit_rewards
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
        missing: Steps of the run that the log lacks, and steps of the run; zeros where that is not
            known.
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
    progress: Progress | None = None,
    **reading: Any,
) -> Report:
    """Reads the log of a finished run and reports the use of its rollouts.

    Args:
        source: A `Ledger`, or a path to any log that `Ledger.read` knows.
        policies: Names of `budgetalloc.methods.table.METHODS` to replay on the log; the others
            are compared with the first. Empty: no replay.
        seeds: Seeds of the replays.
        steps: Steps of each replay, at least 1. Left out: as many as the log can answer, or fewer
            if that would take more than about a minute.
        reward_range: The rewards that stand for failure and success. Left out: the range that the
            log has, else 0 and 1, or the lowest and highest reward of the log if rewards lie
            outside [0, 1], with a note.
        workers: Processes for the replays, or "ray"; by default one process for each core.
        progress: Called with the replays ended and the replays in all.
        reading: Passed on to `Ledger.read` with a path, such as `prompt="id"`.

    Raises:
        InputError: the log has no rewards, or a policy is unknown.

    >>> import pandas as pd
    >>> log = Ledger.of_frame(pd.DataFrame({
    ...     "step": np.repeat(np.arange(4), 8), "prompt": (["a"] * 4 + ["b"] * 4) * 4, "length": 10,
    ...     "reward": [0, 0, 0, 0, 0, 1, 0, 1] * 4}))
    >>> from budgetalloc.report.findings import headline
    >>> print(headline(report(log, policies=()).waste))
    50.0 % of the rollouts gave no gradient under a group baseline: 50.0 % in groups that all failed.
    """
    for policy in policies:
        method_of(policy)  # raises for an unknown name before the log is read
    ledger = source if isinstance(source, Ledger) else read_log(source, **reading)
    notes, doubts = dict(ledger.notes), list(ledger.notes.doubts)
    if ledger.kind != "trl":  # there each reward function was looked at
        for text in constant_scores(ledger.frame["step"], {"of the log": ledger.frame["reward"]}):
            notes[text] = len(ledger.frame)
            doubts.append(text)
    try:
        waste = measure(ledger, reward_range=reward_range)
    except InputError:
        rewards_R = ledger.frame["reward"].to_numpy()
        low, high = np.nanmin(rewards_R, initial=0.0), np.nanmax(rewards_R, initial=1.0)
        if reward_range is not None or (low, high) == (0.0, 1.0):
            raise
        reward_range = float(low), float(high)  # rewards outside [0, 1]
        waste = measure(ledger, reward_range=reward_range)
        notes[f"rewards from {low:g} to {high:g} taken as the range from failure to success"] = (
            waste.rollouts
        )
    replayed, why_not = None, "no policy was named"
    if policies:
        try:
            log, own = unit_rewards(first_steps(ledger), reward_range), list(seeds)
            replayed = replay(
                log, policies, waste, seeds=own, steps=steps, workers=workers, progress=progress
            )
            why_not = ""
        except (BudgetallocError, ImportError) as error:  # the rest of the report stands
            why_not = str(error)
    named = {row["id"] for row in worst(waste, {}, NAMED)}
    return Report(
        name=str(ledger.path or "a log in memory"),
        kind=ledger.kind,
        waste=waste,
        notes=notes,
        replayed=replayed,
        why_not=why_not,
        doubts=tuple(doubts),
        texts={name: text for name, text in ledger.texts.items() if name in named},
        missing=ledger.notes.missing,
    )
