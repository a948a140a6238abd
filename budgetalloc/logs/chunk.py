"""Rollouts in columns: `Rows` as a reader yields them, and `Chunk`, the whole steps of a log."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.errors import InputError, check_array

__all__ = [
    "COLUMNS",
    "FAULTS",
    "LARGEST",
    "LARGEST_REWARD",
    "Chunk",
    "Ints",
    "Notes",
    "Range",
    "Reward",
    "Rows",
    "as_id",
    "as_integer",
    "as_number",
    "columns_of",
    "finite",
    "integer_column",
    "mapped",
    "number_column",
]

Ints = NDArray[np.int64]
Range = tuple[float, float] | None
Reward = str | Mapping[str, float] | None
"""The column of the reward, the weights of several columns, or None for the default of the kind of log."""

FAULTS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Exceptions that a row of unknown content raises. The row counts as broken."""
LARGEST_REWARD = 1e300
"""Larger rewards count as infinite, because their sums and differences would overflow."""
LARGEST = 2**53
"""The largest step or length. Larger integers are not exact as floats."""
COLUMNS = {
    "step_R": np.int64,
    "rewards_R": np.float64,
    "lengths_R": np.int64,
    "predicted_R": np.float64,
    "counts_R": np.int64,
    "success_R": np.float64,
    "trainer_step_R": np.int64,
    "costs_R": np.float64,
}
"""The columns of numbers of a log, and their types."""
_NAMED = 20  # unknown columns in the notes


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rollouts of a log, one entry per rollout, as the readers yield them.

    Args:
        step_R: Step of the policy, or of the trainer if the log has only that. Steps ascend, also from one `Rows` to
            the next. A step may continue in the next `Rows`.
        ids_R: Prompt, int or str.
        rewards_R: Reward in the log's own units, NaN where there is none.
        lengths_R: Tokens, -1 where unknown. Default: all unknown.
        predicted_R: Predicted success rate before the step, NaN where unknown. Default: all unknown.
        counts_R: Rollouts of the prompt in the step; None to count the rows.
        success_R: Success in [0, 1], NaN where there is none; None if the log has only rewards.
        trainer_step_R: Step of the trainer. Default: `step_R`.
        reward_range: Lowest and highest reward according to the log, None if unknown.
        costs_R: Cost in the unit of `cost=`, NaN where unknown. Default: all unknown.
    """

    step_R: Ints
    ids_R: list[Id]
    rewards_R: FloatArray
    lengths_R: Ints = None  # type: ignore[assignment]  # an array after construction
    predicted_R: FloatArray = None  # type: ignore[assignment]  # an array after construction
    counts_R: Ints | None = None
    success_R: FloatArray | None = None
    trainer_step_R: Ints = None  # type: ignore[assignment]  # an array after construction
    reward_range: Range = None
    costs_R: FloatArray = None  # type: ignore[assignment]  # an array after construction

    def __post_init__(self) -> None:
        if self.costs_R is None:
            object.__setattr__(self, "costs_R", np.full(len(self), np.nan))
        if self.lengths_R is None:
            object.__setattr__(self, "lengths_R", np.full(len(self), -1))
        if self.predicted_R is None:
            object.__setattr__(self, "predicted_R", np.full(len(self), np.nan))
        if self.trainer_step_R is None:
            object.__setattr__(self, "trainer_step_R", self.step_R)

    def __len__(self) -> int:
        return len(self.ids_R)

    def cut(self, part: slice) -> "Rows":
        """A slice of the rows."""
        cut: dict[str, Any] = {name: getattr(self, name) for name in ("ids_R", *COLUMNS)}
        cut = {name: None if column is None else column[part] for name, column in cut.items()}
        return replace(self, **cut)


@dataclass(frozen=True, eq=False, repr=False)
class Chunk:
    """Whole steps of a log, one entry per rollout in order, as yielded by a `LogStream`.

    Args:
        step_R: Step of the policy that allocated each rollout, shape (R,); the trainer's step if the log does not have
            it. The rollouts of a prompt in one step are a group.
        ids_R: Prompt of each rollout, R entries.
        rewards_R: Reward of each rollout in the log's own units, NaN where there was none, shape (R,).
        lengths_R: Tokens of each rollout, -1 where unknown, shape (R,).
        predicted_R: Predicted success rate before the step, NaN where unknown, shape (R,).
        counts_R: Rollouts of the prompt in the step, shape (R,).
        broken: Lines that could not be read, such as one cut off when the process was killed.
        success_R: Success of each rollout in [0, 1], NaN where there was none, shape (R,). Default: the reward, mapped
            by `reward_range` and clipped, or unchanged if the range is unknown.
        trainer_step_R: Step of the trainer, shape (R,). Default: `step_R`.
        reward_range: Lowest and highest reward, None where unknown.
        costs_R: Cost of each rollout in the unit of the run's `cost=`, NaN where unknown, shape (R,). Default: unknown.

    Raises:
        InputError: columns of unequal length.

    >>> chunk = Chunk(np.zeros(2), ["a", "b"], np.array([-1.0, 3.0]), *np.ones((3, 2)), reward_range=(-1, 1))
    >>> chunk.success_R, chunk.trainer_step_R
    (array([0., 1.]), array([0., 0.]))
    """

    step_R: Ints
    ids_R: list[Id]
    rewards_R: FloatArray
    lengths_R: Ints
    predicted_R: FloatArray
    counts_R: Ints
    broken: int = 0
    success_R: FloatArray = None  # type: ignore[assignment]  # an array after construction
    trainer_step_R: Ints = None  # type: ignore[assignment]  # an array after construction
    reward_range: Range = None
    costs_R: FloatArray = None  # type: ignore[assignment]  # an array after construction

    def __post_init__(self) -> None:
        if self.costs_R is None:
            object.__setattr__(self, "costs_R", np.full(len(self.ids_R), np.nan))
        if self.success_R is None:
            object.__setattr__(self, "success_R", mapped(self.rewards_R, self.reward_range))
        if self.trainer_step_R is None:
            object.__setattr__(self, "trainer_step_R", self.step_R)
        for name in COLUMNS:
            if (entries := len(getattr(self, name))) != len(self.ids_R):
                raise InputError(f"{name} has {entries} entries, ids_R has {len(self.ids_R)}: give one per rollout.")

    def __repr__(self) -> str:
        prompts, steps = len(set(self.ids_R)), len(np.unique(self.step_R))
        return f"{type(self).__name__}({len(self.ids_R):,} rollouts of {prompts:,} prompts in {steps:,} steps)"


class Notes(Counter[str]):
    """What a reader left out or assumed, and how often."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.doubts: list[str] = []
        """The notes about ambiguous content of the log. A report shows them first."""
        self.missing = (0, 0)
        """Steps of the run that the log lacks, and the steps of the run; zeros where that is not known."""

    def note(self, text: str, count: int) -> None:
        """Adds to a note, unless `count` is 0."""
        if count > 0:
            self[text] += int(count)

    def doubt(self, text: str, count: int) -> None:
        """Adds to a note that belongs in the first lines of a report, unless `count` is 0."""
        self.note(text, count)
        if count > 0 and text not in self.doubts:
            self.doubts.append(text)

    def unknown(self, column: str, count: int) -> None:
        """Notes an unused column. The first 20 are named."""
        text = f"unknown column {column if len(column) < 80 else column[:77] + '...'!r}"
        if text not in self and sum(x.startswith("unknown column ") for x in self) >= _NAMED:
            text = "unknown columns beyond these"
        self.note(text, count)

    def clear(self) -> None:
        super().clear()
        self.doubts.clear()
        self.missing = (0, 0)


def mapped(rewards_R: ArrayLike, reward_range: Range) -> FloatArray:
    """Rewards mapped to [0, 1] by their range and clipped; unchanged where the range is unknown.

    >>> mapped([-1.0, 0.0, 5.0], (-1, 1)), mapped([-1.0, 1 + 1e-9], None)
    (array([0. , 0.5, 1. ]), array([-1.,  1.]))
    """
    if reward_range is None:
        return to_unit(rewards_R, (0.0, 1.0))
    return np.asarray(np.clip(to_unit(rewards_R, reward_range), 0.0, 1.0))


def columns_of(parts: Sequence[Chunk]) -> dict[str, Any]:
    """The columns of numbers of consecutive parts of a log, as arguments of a `Chunk`."""
    return {
        name: np.concatenate([np.zeros(0, dtype), *(getattr(part, name) for part in parts)])
        for name, dtype in COLUMNS.items()
    }


def finite(rewards_R: ArrayLike) -> FloatArray:
    """The rewards, NaN for those that are infinite or larger than `LARGEST_REWARD`.

    >>> finite([1.0, float("-inf"), 1e308])
    array([ 1., nan, nan])
    """
    rewards = np.asarray(rewards_R, dtype=np.float64)
    return np.where(np.abs(rewards) <= LARGEST_REWARD, rewards, np.nan)


def number_column(name: str, values: Any, rows: int, what: str = "one number per rollout") -> FloatArray:
    """A column of `rows` floats, None as NaN; raises `InputError` for anything else."""
    column = check_array(name, values, what, copy=False)
    if column.shape != (rows,):
        found = f"{len(column)} entries" if column.ndim == 1 else f"shape {column.shape}"
        raise InputError(f"{name} has {found}, ids_R has {rows}: give {what}.")
    return column


def integer_column(name: str, values: Any, rows: int) -> Ints:
    """A column of `rows` integers, none larger than `LARGEST`; raises `InputError` for anything else."""
    what = "one integer a rollout, -1 where a length is not known"
    column = number_column(name, values, rows, what)
    with np.errstate(invalid="ignore"):
        fits = (np.abs(column) <= LARGEST) & (column == np.floor(column))
    if not fits.all():
        raise InputError(f"{name} holds {column[~fits][0]}: give {what}.")
    return column.astype(np.int64)


def as_id(value: Any) -> Id:
    """An id from a log; raises `TypeError`, `ValueError` or `OverflowError` for invalid ids.

    >>> as_id("a"), as_id(3), as_id(3.0)
    ('a', 3, 3)
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or value != int(value):
        raise TypeError("no prompt id")
    return int(value)


def as_integer(value: Any) -> int:
    """A step, a length or a count from a log; raises `TypeError`, `ValueError` or `OverflowError` for others.

    >>> as_integer(3), as_integer(3.0), as_integer("3")
    (3, 3, 3)
    """
    number = int(value)
    if isinstance(value, bool) or abs(number) > LARGEST or (isinstance(value, float) and value != number):
        raise ValueError("no integer")
    return number


def as_number(value: Any) -> float:
    """A number from a log, None as NaN; raises `TypeError`, `ValueError` or `OverflowError` for others."""
    return math.nan if value is None else float(value)
