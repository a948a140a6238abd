"""Rollouts in columns: `Rows` as a reader yields them, `Chunk` as whole steps of a log."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray

Ints = NDArray[np.int64]
Reward = str | Mapping[str, float] | None
"""The column of the reward, or weights of several columns, or None for what the kind of log has."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rollouts as a log has them, one entry a rollout: what `rows` of a kind of log yields.

    Args:
        step_R: Training step, ascending, also from one `Rows` to the next; a step may go on in the next.
        ids_R: Prompt, int or str.
        rewards_R: Reward in the log's own units, NaN where there is none.
        lengths_R: Tokens, -1 where unknown; None where the log has none at all.
        predicted_R: Success rate believed before the step, NaN where unknown; None as above.
        counts_R: Rollouts that the prompt had in the step; None to count the rows.
    """

    step_R: Ints
    ids_R: list[Id]
    rewards_R: FloatArray
    lengths_R: Ints | None = None
    predicted_R: FloatArray | None = None
    counts_R: Ints | None = None

    def __len__(self) -> int:
        return len(self.ids_R)

    def cut(self, part: Any) -> "Rows":
        """A slice of the rows."""
        columns = (getattr(self, field.name) for field in fields(self))
        return Rows(*(None if column is None else column[part] for column in columns))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Whole steps of a log, one entry a rollout in order: what a `Reading` yields.

    Args:
        step_R: Training step of each rollout, shape (R,).
        ids_R: Prompt of each rollout, R entries.
        rewards_R: Reward of each rollout, NaN where there was none, shape (R,).
        lengths_R: Tokens of each rollout, -1 where unknown, shape (R,).
        predicted_R: Success rate believed before the step, NaN where unknown, shape (R,).
        counts_R: Rollouts that the prompt had in the step, shape (R,).
        broken: Lines that could not be read, such as one torn by a kill.
    """

    step_R: Ints
    ids_R: list[Id]
    rewards_R: FloatArray
    lengths_R: Ints
    predicted_R: FloatArray
    counts_R: Ints
    broken: int = 0


def as_id(value: Any) -> Id:
    """An id as a log may hold it; raises `TypeError` for anything that is no id.

    >>> as_id("a"), as_id(3), as_id(3.0)
    ('a', 3, 3)
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or value != int(value):
        raise TypeError(f"{value!r} is no prompt id")
    return int(value)
