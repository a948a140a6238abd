"""Distribution of a run's rollouts over its steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from budgetalloc.errors import (
    BudgetError,
    InputError,
    check_choice,
    check_integer,
    check_known,
    check_list,
    check_number,
    short_repr,
)


@dataclass(frozen=True)
class Horizon:
    """The rollouts of a training run, and how they are divided between its steps.

    A step gets its share of the rollouts that are left, as a count with which the later steps can
    spend the rest. A horizon is a function `(step, spent)`, as `AdaptiveRolloutWorker` takes it.

    Args:
        rollouts: Rollouts of the run, spent exactly.
        steps: Steps of the run.
        low, high: Fewest and most rollouts of a step; `high=None` is no limit.
        quantum: `rollouts`, `low`, `high` and the rollouts of each step are multiples of it.
        parts: The steps and the weight of each phase in order; the last one goes on to the end. By
            default all steps have the same weight.

    Raises:
        BudgetError: the bounds contradict each other. InputError: a value out of range.

    >>> Horizon(rollouts=100, steps=3, low=4, quantum=4).plan()
    (32, 36, 32)
    >>> horizon = Horizon(rollouts=100, steps=4, parts=[(2, 1), (2, 4)])
    >>> horizon(step=0, spent=0), horizon(step=2, spent=20)
    (10, 40)
    """

    rollouts: int
    steps: int
    low: int = 1
    high: int | None = None
    quantum: int = 1
    parts: Sequence[tuple[int, float]] = ((1, 1.0),)

    def __post_init__(self) -> None:
        check_integer("quantum", self.quantum, 1)
        check_integer("steps", self.steps, 1)
        for name, least in (("rollouts", 1), ("low", 0), ("high", 1)):
            value = getattr(self, name)
            if name == "high" and value is None:
                continue
            if check_integer(name, value, least) % self.quantum:
                raise BudgetError(
                    f"{self}: {name}={value} is not a multiple of quantum={self.quantum}."
                )
        portions = self.rollouts // self.quantum
        if self.steps * self.low > self.rollouts:
            raise BudgetError(
                f"{self}: {self.steps} steps of at least {self.low} need {self.steps * self.low} "
                f"rollouts. Use low={portions // self.steps * self.quantum} or less."
            )
        if self.high is not None and self.steps * self.high < self.rollouts:
            raise BudgetError(
                f"{self}: {self.steps} steps of at most {self.high} spend {self.steps * self.high} "
                f"rollouts. Use high={-(-portions // self.steps) * self.quantum} or more."
            )
        what = "the steps and the weight of each phase, such as [(100, 1.0), (50, 2.0)]"
        if not check_list("parts", self.parts, what):
            raise InputError("parts", "give at least one phase, such as (100, 1.0).", self.parts)
        for at, part in enumerate(self.parts):
            if not isinstance(part, (tuple, list)) or len(part) != 2:
                raise InputError(f"parts[{at}]={short_repr(part)}", f"is no phase: give {what}.")
            check_integer(f"parts[{at}][0]", part[0], 1)
            check_number(f"parts[{at}][1]", part[1], 0, math.inf, without=(0,))

    def __call__(self, step: int, spent: int) -> int:
        """The rollouts of a step, after so many rollouts of the steps before it.

        Raises:
            BudgetError: so many spent rollouts contradict the bounds.
        """
        check_integer("step", step, 0, self.steps - 1)
        check_integer("spent", spent, 0, self.rollouts)
        later, left = self.steps - step - 1, self.rollouts - spent
        high = self.rollouts if self.high is None else self.high
        fewest, most = max(self.low, left - later * high), min(high, left - later * self.low)
        if fewest > most or spent % self.quantum:
            raise BudgetError(
                f"{self}: {spent} rollouts before step {step} leave {left} for {later + 1} steps, "
                "which the bounds do not allow. Spend at each step what this horizon returns."
            )
        wish = min(max(left * self._share(step), fewest), most)
        return min(max(math.floor(wish / self.quantum + 0.5) * self.quantum, fewest), most)

    def _share(self, step: int) -> float:
        """The step's share of what is left, by the weights of the phases."""
        start, weight_now, weight_left = 0, 0.0, 0.0
        for at, (steps, weight) in enumerate(self.parts):
            end = self.steps if at == len(self.parts) - 1 else min(start + steps, self.steps)
            weight_now = weight if start <= step < end else weight_now
            weight_left += weight * max(0, end - max(start, step))
            start = end
        return weight_now / weight_left

    def plan(self) -> tuple[int, ...]:
        """The rollouts of every step; for at most a million steps."""
        counts: list[int] = []
        spent = 0
        for step in range(check_integer("steps", self.steps, 1, 10**6)):
            counts.append(self(step, spent))
            spent += counts[-1]
        return tuple(counts)


def pacing_plan(given: Mapping[str, Any]) -> tuple[int, ...]:
    """The rollouts of each step (`Policy.plan`), from the settings of a pacing.

    Args:
        given: `name` ("constant", or "phases" with `parts`), and the arguments of `Horizon` (`low`
            is one portion unless given).

    Raises:
        InputError: an unknown or a missing setting, or one out of range. BudgetError: the bounds
            contradict each other.

    >>> pacing_plan({"name": "phases", "rollouts": 96, "steps": 2, "quantum": 8,
    ...     "parts": [[1, 1.0], [1, 2.0]]})
    (32, 64)
    """
    known = ("name", *(field.name for field in fields(Horizon)))
    for key in given:
        check_known(key, known, key)
    check_choice("name", given.get("name"), ("constant", "phases"))
    if missing := [key for key in ("rollouts", "steps") if key not in given]:
        raise InputError(f"give {' and '.join(missing)}.")
    parts = tuples(given.get("parts"))
    if (parts is None) != (given["name"] == "constant"):
        what = "phases needs them, as [[100, 1.0], [50, 2.0]]; constant has none."
        raise InputError("parts", what, parts)
    settings = {key: value for key, value in given.items() if key not in ("name", "parts")}
    settings |= {} if parts is None else {"parts": parts}
    return Horizon(**{"low": given.get("quantum", 1)} | settings).plan()


def tuples(value: Any) -> Any:
    """The value with its lists replaced by tuples, as in the defaults of functions.

    >>> tuples([[100, 1.0], [50, 2.0]])
    ((100, 1.0), (50, 2.0))
    """
    return tuple(map(tuples, value)) if isinstance(value, list) else value
