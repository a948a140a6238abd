"""Columns with ambiguous names, whose meaning is inferred from the first rows of a table."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from budgetalloc.logs.chunk import Notes
from budgetalloc.logs.column_names import NUMBERED, Columns, plain
from budgetalloc.logs.columns import numeric

__all__ = ["resolve_columns"]

_MANY = ("n", "samples", "attempts", "trials")  # these may count the rollouts of a row, or number the rollouts
_ENOUGH = 8  # rows that allow an inference


def resolve_columns(table: Mapping[str, Any], columns: Columns, notes: Notes) -> Columns:
    """The columns, resolved from the first rows of their table. Each inference is noted as a doubt.

    Args:
        table: The used columns of the first rows.
        columns: From `identify_columns`.
        notes: Receive the inferences.

    >>> from budgetalloc.logs.column_names import identify_columns
    >>> table = {"problem_id": [1, 1, 1, 2, 2, 2], "n": [0, 1, 2, 0, 1, 2], "correct": [0, 0, 1, 1, 1, 0]}
    >>> columns = resolve_columns(table, identify_columns(list(table)), notes := Notes())
    >>> columns.rewards, columns.rollouts
    (('correct',), None)
    >>> print(*notes.doubts)
    column 'n' numbers the rollouts of a prompt: a row is read as one rollout with the reward 'correct'
    """
    rows = len(table[columns.ids[0]])
    if columns.numbered is not None:
        notes.doubt(
            f"prompts are named by column {columns.ids[0]!r}; prompt_id={columns.numbered!r} names them by column "
            f"{columns.numbered!r}",
            rows,
        )
    if len(columns.rewards) == 1 and not columns.groups and columns.weights is None:
        cells = table[columns.rewards[0]]
        if any(isinstance(x, (list, tuple, np.ndarray)) for x in cells):
            columns = replace(columns, several=True)
    if columns.successes is not None:
        return _rollouts(table, columns, notes)
    if plain(columns.ids[0]) in NUMBERED and not columns.groups and rows >= _ENOUGH:
        ids = [str(x) for x in table[columns.ids[0]]]
        if len(set(ids)) == rows:
            notes.doubt(
                f"no value of the column {columns.ids[0]!r} comes twice in the first rows: does it number rows? Name "
                "the column of prompts with prompt_id=",
                rows,
            )
    return columns


def _rollouts(table: Mapping[str, Any], columns: Columns, notes: Notes) -> Columns:
    """The columns, after a check whether one such as `n` counts rollouts or numbers them. Successes must be 0 or 1."""
    assert columns.successes is not None
    assert columns.rollouts is not None
    (passed_G, _), (n_G, _) = numeric(table[columns.successes]), numeric(table[columns.rollouts])
    if plain(columns.rollouts) not in _MANY or not set(passed_G[~np.isnan(passed_G)].tolist()) <= {0.0, 1.0}:
        return columns
    names = [table[name] for name in ((columns.step,) if columns.step else ()) + columns.ids]
    numbers: dict[tuple[str, ...], list[float]] = {}
    for *name, n in zip(*names, n_G.tolist(), strict=True):
        numbers.setdefault(tuple(map(str, name)), []).append(n)
    whole = list(numbers.values())[:-1] or list(numbers.values())  # the last prompt may continue in the next rows
    counted = any(
        all(sorted(x) == list(range(start, start + len(x))) for x in whole) and max(map(len, whole), default=0) > 1
        for start in (0, 1)
    )
    if counted:
        notes.doubt(
            f"column {columns.rollouts!r} numbers the rollouts of a prompt: a row is read as one rollout with the "
            f"reward {columns.successes!r}",
            len(n_G),
        )
        return replace(columns, rewards=(columns.successes,), successes=None, rollouts=None)
    if len(n_G) >= _ENOUGH and np.nanmax(n_G, initial=0) > 1:
        notes.doubt(
            f"columns {columns.successes!r} and {columns.rollouts!r} are read as successes of so many rollouts; if a "
            f"row is one rollout, pass reward={columns.successes!r}",
            len(n_G),
        )
    return columns
