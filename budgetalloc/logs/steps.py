"""Conversion of rows, in parts of any size, to chunks of whole steps in ascending order."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import COLUMNS, Chunk, Ints, Notes, Range, Rows, finite, mapped

__all__ = ["MAX_STEP", "ascending", "joined", "whole_steps"]

_SORTED = [name for name in COLUMNS if name != "counts_R"]  # counts are made after the sort
_RECORD = np.dtype([("id", np.int64), *((name, COLUMNS[name]) for name in _SORTED)])
MAX_STEP = 10_000_000  # rollouts of one step: some 2 GB


def whole_steps(
    parts: Iterable[Rows], chunk: int, notes: Notes, reward_range: Range = None, max_step: int = MAX_STEP
) -> Iterator[Chunk]:
    """Rows in parts of any size as whole steps: about `chunk` rollouts at a time, or one step if that is larger.

    Raises:
        InputError: a step has more than `max_step` rollouts.
    """
    held: list[Rows] = []
    size = broken = 0
    last: int | None = None
    for part in parts:
        if not len(part):
            continue
        first = int(part.step_R[0])
        if (last is not None and first < last) or (np.diff(part.step_R) < 0).any():
            raise AssertionError("a reader must yield ascending steps")
        last = int(part.step_R[-1])
        held.append(part)
        size += len(part)
        if size >= chunk and held[0].step_R[0] != last:
            every = joined(held)
            end = int(np.searchsorted(every.step_R, last))  # the last step may continue in the next part
            yield _chunk(every.cut(slice(None, end)), notes, reward_range, notes["broken row"] - broken)
            held, size, broken = [every.cut(slice(end, None))], len(every) - end, notes["broken row"]
        if size > max_step and held[0].step_R[0] == last:
            raise InputError(
                f"step {last} has more than max_step={max_step:,} rollouts, which must fit into memory together. Check "
                "that the column of steps is the right one, or pass a larger max_step to Ledger.read or open_log."
            )
    if held:
        yield _chunk(joined(held), notes, reward_range, notes["broken row"] - broken)


def joined(parts: list[Rows]) -> Rows:
    """Several parts as one. Counts and success are left out unless every part has them."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        values = [getattr(part, name) for part in parts]
        columns[name] = None if any(x is None for x in values) else np.concatenate(values)
    ids_R = [name for part in parts for name in part.ids_R]
    return Rows(ids_R=ids_R, reward_range=parts[-1].reward_range, **columns)


def _chunk(rows: Rows, notes: Notes, reward_range: Range, broken: int) -> Chunk:
    """Rows of whole steps as a chunk with counts. Rewards are mapped to [0, 1] if the caller gave their range."""
    rewards_R = finite(rows.rewards_R)
    infinite_R = np.isnan(rewards_R) & ~np.isnan(rows.rewards_R)
    known = rows.reward_range
    if reward_range is not None or known is None:
        unit_R = rewards_R = to_unit(rewards_R, reward_range or (0.0, 1.0))
        known = None if reward_range is None else (0.0, 1.0)
        note = "reward outside [0, 1]" if reward_range is None else "reward outside reward_range"
    else:
        unit_R = to_unit(rewards_R, known)
        note = f"reward outside the log's range {known[0]:g} to {known[1]:g}"
    success_R = np.zeros(0) if rows.success_R is None else rows.success_R
    for text, where_R in (
        ("row without a reward", np.isnan(rewards_R)),
        ("infinite reward", infinite_R),
        (note, (unit_R < 0) | (unit_R > 1)),
        ("success outside [0, 1], clipped", (success_R < 0) | (success_R > 1)),
        ("length unknown", rows.lengths_R < 0),
    ):
        notes.note(text, int(where_R.sum()))
    return Chunk(
        rows.step_R,
        rows.ids_R,
        rewards_R,
        rows.lengths_R,
        rows.predicted_R,
        _counts(rows) if rows.counts_R is None else rows.counts_R,
        broken,
        mapped(rewards_R, known) if rows.success_R is None else np.clip(success_R, 0.0, 1.0),
        rows.trainer_step_R,
        known,
        rows.costs_R,
    )


def _counts(rows: Rows) -> Ints:
    """The rows of the same prompt in the same step, counted for each row."""
    every, prompt_R = factorize(rows.ids_R)
    _, step_R = np.unique(rows.step_R, return_inverse=True)
    _, group_R = np.unique(step_R * len(every) + prompt_R, return_inverse=True)
    counts_R: Ints = np.bincount(group_R)[group_R]
    return counts_R


def ascending(
    make: Callable[[], Iterator[Rows]],
    chunk: int,
    notes: Notes,
    steps: Callable[[], Iterable[Ints]] | None = None,
) -> Iterator[Rows]:
    """Rows in ascending steps, of a log whose order is unknown. The log is read twice.

    A log out of order is sorted in a temporary folder on disk (64 bytes a rollout). Memory holds one chunk, and one
    entry for each prompt and each step.

    Args:
        make: Reads the log from its start at each call. The notes of its last run are kept.
        chunk: Rollouts to hold in memory at a time.
        notes: Says that the log had to be sorted.
        steps: The steps of the log in its order, if they can be read faster than by `make`.
    """
    rows_of: Counter[int] = Counter()
    ordered, last = True, -(2**63)
    for step_R in steps() if steps else (rows.step_R for rows in make()):
        if len(step_R):
            ordered = ordered and last <= step_R[0] and bool((np.diff(step_R) >= 0).all())
            last = int(step_R[-1])
            rows_of.update(dict(zip(*(x.tolist() for x in np.unique(step_R, return_counts=True)), strict=True)))
    notes.clear()
    if ordered:
        yield from make()
        return
    notes["steps out of order, sorted"] += 1
    steps_S = np.array(sorted(rows_of))
    bucket_S = (np.cumsum([rows_of[step] for step in steps_S.tolist()]) - 1) // chunk
    place: dict[Id, int] = {}
    reward_range, successes = None, False
    with tempfile.TemporaryDirectory(prefix="budgetalloc-") as name:
        folder = Path(name)
        for part in make():
            reward_range, successes = part.reward_range, part.success_R is not None
            table = np.empty(len(part), dtype=_RECORD)
            table["id"] = [place.setdefault(x, len(place)) for x in part.ids_R]
            for column in _SORTED:
                table[column] = np.nan if (values := getattr(part, column)) is None else values
            # Steps that a run has added since the first pass go to the last bucket.
            bucket_R = bucket_S[np.minimum(np.searchsorted(steps_S, part.step_R), len(steps_S) - 1)]
            for bucket in np.unique(bucket_R).tolist():
                with (folder / str(bucket)).open("ab") as file:
                    file.write(table[bucket_R == bucket].tobytes())
        names = list(place)
        for bucket in np.unique(bucket_S).tolist():
            table = np.fromfile(folder / str(bucket), dtype=_RECORD)
            table = table[np.argsort(table["step_R"], kind="stable")]
            columns: dict[str, Any] = {column: table[column].copy() for column in _SORTED}
            if not successes:
                columns["success_R"] = None
            yield Rows(ids_R=[names[at] for at in table["id"].tolist()], reward_range=reward_range, **columns)
