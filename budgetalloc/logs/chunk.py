"""Rollouts in columns: `Rows` as a reader yields them, `Chunk` as whole steps of a log."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.errors import InputError

Ints = NDArray[np.int64]
Range = tuple[float, float] | None
Reward = str | Mapping[str, float] | None
"""The column of the reward, or weights of several columns, or None for the default of the kind of log."""

FAULTS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Exceptions for a row with unknown content, which counts as broken."""
LARGEST_REWARD = 1e300
"""Larger rewards in a log are damage, and count as infinite: their sums and differences would overflow."""
LARGEST = 2**53
"""The largest step or length: larger integers are not exact as floats, and are not plausible in a log."""
_NAMED = 20  # unknown columns in the notes


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rollouts of a log, one entry per rollout, as yielded by `rows` of a kind of log.

    Args:
        step_R: Step of the policy, or of the trainer if the log has only that; ascending, also from one `Rows` to the
            next. A step may continue in the next.
        ids_R: Prompt, int or str.
        rewards_R: Reward in the log's own units, NaN where there is none.
        lengths_R: Tokens, -1 where unknown; None if the log has no lengths.
        predicted_R: Predicted success rate before the step, NaN where unknown; None as above.
        counts_R: Rollouts that the prompt had in the step; None to count the rows.
        success_R: Success in [0, 1], NaN where there is none; None if the log has only rewards.
        trainer_step_R: Step of the trainer; None where it is `step_R`.
        reward_range: Lowest and highest reward according to the log, None if unknown.
    """

    step_R: Ints
    ids_R: list[Id]
    rewards_R: FloatArray
    lengths_R: Ints | None = None
    predicted_R: FloatArray | None = None
    counts_R: Ints | None = None
    success_R: FloatArray | None = None
    trainer_step_R: Ints | None = None
    reward_range: Range = None

    def __len__(self) -> int:
        return len(self.ids_R)

    def cut(self, part: Any) -> "Rows":
        """A slice of the rows."""
        *names, _ = (field.name for field in fields(self))
        columns = {name: getattr(self, name) for name in names}
        cut: dict[str, Any] = {name: None if x is None else x[part] for name, x in columns.items()}
        return replace(self, **cut)


@dataclass(frozen=True, eq=False, repr=False)
class Chunk:
    """Whole steps of a log, one entry per rollout in order, as yielded by a `LogStream`.

    Args:
        step_R: Step of the policy in which each rollout was decided, shape (R,); the trainer's step if the log does not
            have it. The rollouts of a prompt in one step are a group.
        ids_R: Prompt of each rollout, R entries.
        rewards_R: Reward of each rollout in the log's own units, NaN where there was none, shape (R,).
        lengths_R: Tokens of each rollout, -1 where unknown, shape (R,).
        predicted_R: Predicted success rate before the step, NaN where unknown, shape (R,).
        counts_R: Rollouts that the prompt had in the step, shape (R,).
        broken: Lines that could not be read, such as one torn by a kill.
        success_R: Success of each rollout in [0, 1], NaN where there was none, shape (R,). Default: the reward, mapped
            by `reward_range` and clipped; if the range is unknown too, the reward unchanged.
        trainer_step_R: Step of the trainer, shape (R,). Left out: `step_R`.
        reward_range: Lowest and highest reward, None where unknown.

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

    def __post_init__(self) -> None:
        if self.success_R is None:
            object.__setattr__(self, "success_R", mapped(self.rewards_R, self.reward_range))
        if self.trainer_step_R is None:
            object.__setattr__(self, "trainer_step_R", self.step_R)
        for field in fields(self):
            if field.name.endswith("_R") and len(getattr(self, field.name)) != len(self.ids_R):
                raise InputError(
                    f"{field.name} has {len(getattr(self, field.name))} entries, ids_R has {len(self.ids_R)}: give one "
                    "entry a rollout."
                )

    def __repr__(self) -> str:
        prompts, steps = len(set(self.ids_R)), len(np.unique(self.step_R))
        return f"{type(self).__name__}({len(self.ids_R):,} rollouts of {prompts:,} prompts in {steps:,} steps)"


class Notes(Counter[str]):
    """The omissions and assumptions of a reader, with their counts."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.doubts: list[str] = []
        """The notes about ambiguous content of the log; they come first."""
        self.missing = (0, 0)
        """Steps of the run that the log lacks, and the steps of the run; zeros where that is not known."""

    def doubt(self, text: str, count: int) -> None:
        """Adds a note that belongs in the first lines of a report."""
        if not count:
            return
        self[text] += count
        if text not in self.doubts:
            self.doubts.append(text)

    def unknown(self, column: str, count: int) -> None:
        """Notes an unused column; the first 20 by name."""
        if not count:
            return
        text = f"unknown column {column if len(column) < 80 else column[:77] + '...'!r}"
        if text not in self and sum(x.startswith("unknown column ") for x in self) >= _NAMED:
            text = "unknown columns beyond these"
        self[text] += count

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


def finite(rewards_R: ArrayLike) -> FloatArray:
    """The rewards, NaN for those that are infinite or larger than `LARGEST_REWARD`.

    >>> finite([1.0, float("-inf"), 1e308])
    array([ 1., nan, nan])
    """
    rewards = np.asarray(rewards_R, dtype=np.float64)
    return np.where(np.abs(rewards) <= LARGEST_REWARD, rewards, np.nan)


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
