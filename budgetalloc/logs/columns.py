"""Rows of a table as rollouts, once `column_names` has identified the columns.

A row is one rollout, or a group. A group has successes and rollouts, several rewards in one cell, or the columns
reward_0, reward_1, ...
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.logs.chunk import FAULTS, LARGEST, Ints, Notes, Rows, as_id
from budgetalloc.logs.column_names import Columns
from budgetalloc.logs.log_stream import ReadOptions

__all__ = ["Bools", "numeric", "rollouts", "weighted"]

Bools = NDArray[np.bool_]
_WORDS = {"true": 1.0, "false": 0.0}
_AT_ONCE = 1_000_000  # rollouts in one `Rows`
_NONSENSE = 10**9  # a row of more rollouts is broken


def rollouts(
    table: Mapping[str, Any], columns: Columns, visits: Counter[Id], notes: Notes, max_row: int = ReadOptions.max_row
) -> Iterator[Rows]:
    """Rows of a table as rollouts, in the order of the table. Unusable rows are counted.

    Args:
        table: The used columns: lists, or arrays of numbers.
        columns: From `identify_columns`.
        visits: Visits of each prompt in earlier rows, updated here. They are the steps if the table has no steps.
        notes: Count the unusable rows.
        max_row: Rollouts that a row may stand for.
    """
    ids, named_G = _ids(table, columns)
    for name in columns.unknown:
        notes.unknown(name, len(ids))

    def column(name: str | None, default: float = math.nan) -> tuple[FloatArray, Bools]:
        return numeric(table[name]) if name else (np.full(len(ids), default), np.zeros(len(ids), dtype=bool))

    size_G, rewards, bad_G = _rewards(table, columns, max_row)
    step_G, bad_step_G = column(columns.step, 0.0)
    lengths_G, bad_length_G = column(columns.length)
    predicted_G, bad_predicted_G = column(columns.predicted)
    success_G, bad_success_G = column(columns.success)
    odd_G = bad_G | bad_step_G | bad_length_G | bad_predicted_G | bad_success_G
    with np.errstate(invalid="ignore"):
        odd_G |= ~(np.abs(step_G) <= LARGEST) | (step_G != np.floor(step_G)) | (np.abs(lengths_G) > LARGEST)
    large_G = ~odd_G & (size_G > max_row)
    keep_G = named_G & ~odd_G & ~large_G
    for text, where_G in (
        ("row without a prompt", ~named_G),
        ("broken row", named_G & odd_G),
        (f"row of more than max_row={max_row:,} rollouts, skipped", named_G & large_G),
        ("row of no rollouts", keep_G & (size_G == 0)),
    ):
        notes.note(text, int(where_G.sum()))
    _steps(ids, step_G, keep_G, columns, visits, notes)
    step_G, lengths_G = np.where(keep_G, step_G, 0.0), np.where(np.isfinite(lengths_G), lengths_G, -1.0)
    size_G = np.where(keep_G, size_G, 0)
    cuts = np.searchsorted(np.cumsum(size_G), np.arange(_AT_ONCE, size_G.sum() + _AT_ONCE, _AT_ONCE)) + 1
    for start, end in pairwise([0, *cuts.tolist()]):
        part = slice(start, end)
        if not size_G[part].any():
            continue
        yield Rows(
            np.repeat(step_G[part].astype(np.int64), size_G[part]),
            [name for name, size in zip(ids[part], size_G[part].tolist(), strict=True) for _ in range(size)],
            rewards(part, size_G[part]),
            np.repeat(lengths_G[part].astype(np.int64), size_G[part]),
            np.repeat(predicted_G[part], size_G[part]),
            None,
            np.repeat(success_G[part], size_G[part]) if columns.success else None,
        )


def _steps(
    ids: list[Id], step_G: FloatArray, keep_G: Bools, columns: Columns, visits: Counter[Id], notes: Notes
) -> None:
    """Notes prompts with two groups in a step. Without steps, numbers the visits of each prompt, in place."""
    if columns.groups and columns.step:
        groups = list(zip(step_G[keep_G].tolist(), [ids[at] for at in np.flatnonzero(keep_G).tolist()], strict=True))
        again = len(groups) - len(set(groups))  # within these rows
        notes.doubt("second row of a prompt in one step: do several columns together name a prompt?", again)
    if columns.step is None:
        note = "the rows of a prompt are taken as its visits" if columns.groups else "all rows are taken as one step"
        notes[f"no column of steps: {note}"] = 1
        if columns.groups:
            for at in np.flatnonzero(keep_G).tolist():
                step_G[at] = visits[ids[at]]
                visits[ids[at]] += 1


def _ids(table: Mapping[str, Any], columns: Columns) -> tuple[list[Id], Bools]:
    """The prompt of each row, and whether there is one. Several columns are joined by a slash, as in "aime24/7"."""
    parts = [table[name].tolist() if hasattr(table[name], "tolist") else table[name] for name in columns.ids]
    named_G = np.ones(len(parts[0]), dtype=bool)
    if len(parts) == 1 and not columns.text and set(map(type, parts[0])) <= {int, str} and "" not in parts[0]:
        return list(parts[0]), named_G  # the usual case, at C speed
    ids: list[Id] = []
    for at, values in enumerate(zip(*parts, strict=True)):
        try:
            if any(x is None or x == "" for x in values):
                raise TypeError("no name")
            if columns.text:
                ids.append(text_id(values[0]))
            else:
                ids.append(as_id(values[0]) if len(values) == 1 else "/".join(str(as_id(x)) for x in values))
        except FAULTS:
            ids.append("")
            named_G[at] = False
    return ids, named_G


def _rewards(
    table: Mapping[str, Any], columns: Columns, max_row: int
) -> tuple[Ints, Callable[[slice, Ints], FloatArray], Bools]:
    """The number of rollouts of each row, their rewards as a function of a slice of the rows and of their sizes (0 for
    rows that are left out), and which rows cannot be read."""
    if columns.successes is not None and columns.rollouts is not None:
        (passed_G, bad_G), (many_G, odd_G) = numeric(table[columns.successes]), numeric(table[columns.rollouts])
        with np.errstate(invalid="ignore"):
            odd_G = odd_G | bad_G | ~((passed_G >= 0) & (passed_G <= many_G) & (many_G <= _NONSENSE))
            odd_G |= (passed_G != np.floor(passed_G)) | (many_G != np.floor(many_G))

        def expanded(part: slice, size_G: Ints) -> FloatArray:
            first_R = np.repeat(np.cumsum(size_G) - size_G, size_G)
            return (np.arange(len(first_R)) - first_R < np.repeat(passed_G[part], size_G)).astype(np.float64)

        return np.where(odd_G, 0, many_G).astype(np.int64), expanded, odd_G
    if columns.several:
        lists = [_several(cell, max_row) for cell in table[columns.rewards[0]]]

        def flat(part: slice, size_G: Ints) -> FloatArray:
            kept = [x for x, size in zip(lists[part], size_G.tolist(), strict=True) if x is not None and size]
            return np.array([value for x in kept for value in x], dtype=np.float64)

        size_G = np.array([0 if x is None else len(x) for x in lists], dtype=np.int64)
        return size_G, flat, np.array([x is None for x in lists], dtype=bool)
    each = [numeric(table[name]) for name in columns.rewards]
    odd_G = np.any([bad for _, bad in each], axis=0)
    if columns.groups:
        matrix = np.stack([values for values, _ in each], axis=1)
        there = ~np.isnan(matrix)  # an empty cell is no rollout, not a rollout without a reward

        def in_columns(part: slice, size_G: Ints) -> FloatArray:
            return np.asarray(matrix[part][there[part] & (size_G > 0)[:, None]])

        return np.where(odd_G, 0, there.sum(axis=1)), in_columns, odd_G
    total_G = each[0][0] if columns.weights is None else weighted([values for values, _ in each], columns.weights)
    return np.ones(len(total_G), dtype=np.int64), lambda part, size_G: total_G[part][size_G > 0], odd_G


def weighted(values: Sequence[FloatArray], weights: Sequence[float]) -> FloatArray:
    """The weighted sum of several rewards, as in TRL. Missing rewards count as 0; the sum is NaN if all are missing.

    >>> weighted([np.array([1.0, np.nan, np.nan]), np.array([0.5, 0.5, np.nan])], [1, 2])
    array([ 2.,  1., nan])
    """
    matrix = np.stack(values)
    total: FloatArray = np.nansum(matrix * np.asarray(weights)[:, None], axis=0)
    return np.where(np.isnan(matrix).all(axis=0), np.nan, total)


def _several(cell: Any, max_row: int) -> Sequence[float] | None:
    """The rewards in one cell: a list, JSON, or a digit 0 or 1 for each rollout; None for anything else. For more than
    `max_row` rewards, the result is only as long as that plus one, and has no rewards."""
    try:
        if isinstance(cell, str):
            text = cell.strip()
            digits = bool(text) and set(text) <= {"0", "1"}
            if (len(text) if digits else text.count(",") + text.count(";")) > max_row:
                return range(max_row + 1)
            if digits:
                return [float(x) for x in text]
            cell = json.loads(text) if text.startswith("[") else text.replace(";", " ").replace(",", " ").split()
        if isinstance(cell, Mapping):
            return None
        return range(max_row + 1) if len(cell) > max_row else [math.nan if x is None else float(x) for x in cell]
    except FAULTS:
        return None


def numeric(values: Any) -> tuple[FloatArray, Bools]:
    """The values as floats, NaN where there is none, and a mask of the entries that are not numbers."""
    try:
        array = np.array(values, dtype=np.float64)
        if array.ndim == 1:
            return array, np.zeros(len(array), dtype=bool)
    except FAULTS:
        pass
    array, odd = np.full(len(values), np.nan), np.zeros(len(values), dtype=bool)
    for at, value in enumerate(values):
        text = value.strip().lower() if isinstance(value, str) else value
        try:
            array[at] = math.nan if text is None or text == "" else _WORDS[text] if text in _WORDS else float(text)
        except FAULTS:
            odd[at] = True
    return array, odd
