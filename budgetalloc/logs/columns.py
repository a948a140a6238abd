"""Rows of a table as rollouts, once `names` has identified the columns.

A row is a rollout (a reward), or a group: successes and rollouts, or several rewards in one cell or in columns
reward_0, reward_1, ...
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.logs.base import Ints, Rows, as_id
from budgetalloc.logs.names import Columns

_WORDS = {"true": 1.0, "false": 0.0}
_LARGEST = 10**7  # rollouts in one row; a row with more is counted as broken


def rollouts(table: Mapping[str, Any], columns: Columns, visits: Counter[Id], notes: Counter[str]) -> Rows | None:
    """Rows of a table as rollouts, in the order of the table; None if there are none. Unusable rows are counted.

    Args:
        table: The used columns: lists, or arrays of numbers.
        columns: From `identify`.
        visits: Visits of each prompt in earlier rows, updated here: they are the steps of a table that has no steps.
        notes: Counts what was left out.
    """
    ids, named_G = _ids(table, columns)
    for name in columns.unknown:
        notes[f"unknown column {name!r}"] += len(ids)
    step_G, odd_G = _numbers(table[columns.step]) if columns.step else (np.zeros(len(ids)), np.zeros(len(ids), bool))
    size_G, rewards_R, bad_G = _rewards(table, columns)
    odd_G |= bad_G | ~np.isfinite(step_G) | (step_G != np.floor(step_G))
    lengths_G, predicted_G = np.full(len(ids), np.nan), np.full(len(ids), np.nan)
    if columns.length:
        lengths_G, bad_G = _numbers(table[columns.length])
        odd_G |= bad_G
    if columns.predicted:
        predicted_G, bad_G = _numbers(table[columns.predicted])
        odd_G |= bad_G
    keep_G = named_G & ~odd_G
    for text, where_G in (
        ("row without a prompt", ~named_G),
        ("broken row", named_G & odd_G),
        ("row of no rollouts", keep_G & (size_G == 0)),
    ):
        if count := int(where_G.sum()):
            notes[text] += count
    if columns.groups and columns.step:
        groups = list(zip(step_G[keep_G].tolist(), [ids[at] for at in np.flatnonzero(keep_G).tolist()], strict=True))
        if again := len(groups) - len(set(groups)):  # among rows that are near each other
            notes["row of a prompt that has another one in its step: is its name in several columns?"] += again
    if columns.step is None:
        said = "the rows of a prompt are taken as its visits" if columns.groups else "all rows are taken as one step"
        notes[f"no column of steps: {said}"] = 1
        if columns.groups:
            for at in np.flatnonzero(keep_G).tolist():
                step_G[at] = visits[ids[at]]
                visits[ids[at]] += 1
    rewards_R = rewards_R[np.repeat(keep_G, size_G)]
    size_G = np.where(keep_G, size_G, 0)
    if not len(rewards_R):
        return None
    step_G = np.where(keep_G, step_G, 0.0)
    lengths_G = np.where(np.isfinite(lengths_G), lengths_G, -1.0)
    return Rows(
        np.repeat(step_G.astype(np.int64), size_G),
        [name for name, size in zip(ids, size_G.tolist(), strict=True) for _ in range(size)],
        rewards_R,
        np.repeat(lengths_G.astype(np.int64), size_G),
        np.repeat(predicted_G, size_G),
    )


def _ids(table: Mapping[str, Any], columns: Columns) -> tuple[list[Id], NDArray[np.bool_]]:
    """The prompt of each row, and where there is one. Several columns are joined by a slash, as in "aime24/7"."""
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
        except (TypeError, ValueError, OverflowError):
            ids.append("")
            named_G[at] = False
    return ids, named_G


def _rewards(table: Mapping[str, Any], columns: Columns) -> tuple[Ints, FloatArray, NDArray[np.bool_]]:
    """How many rollouts each row has, the rewards of all of them in order, and which rows cannot be read (size 0)."""
    if columns.successes is not None and columns.rollouts is not None:
        (passed_G, bad_G), (size_G, odd_G) = _numbers(table[columns.successes]), _numbers(table[columns.rollouts])
        with np.errstate(invalid="ignore"):
            odd_G |= bad_G | ~((passed_G >= 0) & (passed_G <= size_G))
            odd_G |= (passed_G != np.floor(passed_G)) | (size_G != np.floor(size_G)) | (size_G > _LARGEST)
        sizes_G = np.where(odd_G, 0, size_G).astype(np.int64)
        first_R = np.repeat(np.cumsum(sizes_G) - sizes_G, sizes_G)
        passed_R = np.repeat(np.where(odd_G, 0, passed_G), sizes_G)
        return sizes_G, (np.arange(len(first_R)) - first_R < passed_R).astype(np.float64), odd_G
    if columns.weights is not None:
        each = [_numbers(table[name]) for name in columns.rewards]
        total_G = weighted([values for values, _ in each], columns.weights)
        return np.ones(len(total_G), dtype=np.int64), total_G, np.any([bad for _, bad in each], axis=0)
    if not columns.groups:
        values_G, odd_G = _numbers(table[columns.rewards[0]])
        return np.where(odd_G, 0, 1), values_G[~odd_G], odd_G
    if len(columns.rewards) > 1:
        each = [_numbers(table[name]) for name in columns.rewards]
        odd_G = np.any([bad for _, bad in each], axis=0)
        matrix = np.stack([values for values, _ in each], axis=1)[~odd_G]
        there = ~np.isnan(matrix)  # a rollout that is missing is no rollout without a reward
        sizes_G = np.zeros(len(odd_G), dtype=np.int64)
        sizes_G[~odd_G] = there.sum(axis=1)
        return sizes_G, matrix[there], odd_G
    lists = [_several(cell) for cell in table[columns.rewards[0]]]
    sizes_G = np.array([0 if x is None else len(x) for x in lists], dtype=np.int64)
    flat = [value for x in lists if x is not None for value in x]
    return sizes_G, np.array(flat, dtype=np.float64), np.array([x is None for x in lists], dtype=bool)


def weighted(values: Sequence[FloatArray], weights: Sequence[float]) -> FloatArray:
    """The weighted sum of several rewards, as TRL has it: those missing add nothing, NaN where all are missing.

    >>> weighted([np.array([1.0, np.nan, np.nan]), np.array([0.5, 0.5, np.nan])], [1, 2])
    array([ 2.,  1., nan])
    """
    matrix = np.stack(values)
    total: FloatArray = np.nansum(matrix * np.asarray(weights)[:, None], axis=0)
    return np.where(np.isnan(matrix).all(axis=0), np.nan, total)


def _several(cell: Any) -> list[float] | None:
    """The rewards in one cell: a list, JSON, or a digit 0 or 1 for each rollout; None for anything else."""
    try:
        if isinstance(cell, str):
            text = cell.strip()
            if text and set(text) <= {"0", "1"}:
                return [float(x) for x in text]
            cell = json.loads(text) if text.startswith("[") else text.replace(";", " ").replace(",", " ").split()
        return [math.nan if x is None else float(x) for x in cell]
    except (TypeError, ValueError):
        return None


def _numbers(values: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Numbers, NaN where there is none, and where there is something else."""
    try:
        array = np.array(values, dtype=np.float64)
        return array, np.zeros(len(array), dtype=bool)
    except (TypeError, ValueError):
        pass
    array, odd = np.full(len(values), np.nan), np.zeros(len(values), dtype=bool)
    for at, value in enumerate(values):
        text = value.strip().lower() if isinstance(value, str) else value
        try:
            array[at] = math.nan if text in (None, "") else _WORDS[text] if text in _WORDS else float(text)
        except (TypeError, ValueError):
            odd[at] = True
    return array, odd
