"""Distribution of a run's rollouts over its steps, and a price that keeps a budget on average."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from budgetalloc.errors import (
    BudgetError,
    InputError,
    check_choice,
    check_function,
    check_integer,
    check_list,
    check_number,
    check_type,
    nearest,
    shown,
)

__all__ = ["PACING", "DualPrice", "Horizon", "constant", "pacing_plan", "phases", "tuples"]


@dataclass(frozen=True)
class Horizon:
    """The rollouts of a training run, and the bounds of one step.

    A rule proposes a number of rollouts, and `fit` turns it into a count that keeps the total.

    Args:
        rollouts: Rollouts of the run, spent exactly.
        steps: Steps of the run.
        low, high: Fewest and most rollouts of a step; `high=None` is no limit.
        quantum: `rollouts`, `low`, `high` and the rollouts of each step are multiples of it.

    Raises:
        BudgetError: the bounds contradict each other. InputError: a value out of range.

    >>> horizon = Horizon(rollouts=100, steps=3, low=20, high=50)
    >>> horizon.fit(90, step=0, spent=0)  # more than a step may have
    50
    >>> horizon.fit(0, step=2, spent=70)  # the last step takes what is left
    30
    """

    rollouts: int
    steps: int
    low: int = 1
    high: int | None = None
    quantum: int = 1

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

    def bounds(self, step: int, spent: int) -> tuple[int, int]:
        """Fewest and most rollouts of this step with which the later steps can spend the rest
        exactly.

        Args:
            step: From 0.
            spent: Rollouts of the steps before it.

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
                "which the bounds "
                "do not allow. Spend at each step what fit() returns."
            )
        return fewest, most

    def fit(self, wish: float, step: int, spent: int) -> int:
        """The rollouts of this step: the multiple of `quantum` within the bounds that is nearest to
        the proposal."""
        if not isinstance(wish, (int, float, np.integer, np.floating)) or wish != wish:
            raise InputError("wish", "use a number of rollouts.", wish)
        fewest, most = self.bounds(step, spent)
        wish = min(max(wish, fewest), most)
        return min(max(math.floor(wish / self.quantum + 0.5) * self.quantum, fewest), most)

    def plan(self, rule: Callable[[int, int], float]) -> list[int]:
        """The rollouts of every step, where each step proposes `rule(step, spent)`; for at most a
        million steps.

        >>> horizon = Horizon(rollouts=100, steps=3, low=4, quantum=4)
        >>> horizon.plan(lambda step, spent: constant(horizon, step, spent))
        [32, 36, 32]
        """
        check_function("rule", rule, "(step, spent) -> the rollouts that it proposes for the step")
        counts: list[int] = []
        spent = 0
        for step in range(check_integer("steps", self.steps, 1, 10**6)):
            counts.append(self.fit(rule(step, spent), step, spent))
            spent += counts[-1]
        return counts


def constant(horizon: Horizon, step: int, spent: int) -> float:
    """An equal share of the rollouts that are left.

    >>> constant(Horizon(rollouts=100, steps=4), step=1, spent=40)
    20.0
    """
    check_type("horizon", horizon, Horizon, "a Horizon")
    horizon.bounds(step, spent)
    return (horizon.rollouts - spent) / (horizon.steps - step)


def phases(horizon: Horizon, parts: Sequence[tuple[int, float]], step: int, spent: int) -> float:
    """A share of the rollouts that are left, in proportion to the weight of the step's phase.

    `parts` are the steps and the weight of each phase in order; the last one goes on to the end.

    >>> horizon = Horizon(rollouts=100, steps=4)
    >>> phases(horizon, [(2, 1), (2, 4)], 0, 0), phases(horizon, [(2, 1), (2, 4)], 2, 20)
    (10.0, 40.0)
    """
    check_type("horizon", horizon, Horizon, "a Horizon")
    horizon.bounds(step, spent)
    what = "the steps and the weight of each phase, such as [(100, 1.0), (50, 2.0)]"
    if not check_list("parts", parts, what):
        raise InputError("parts", "give at least one phase, such as (100, 1.0).", parts)
    start, weight_now, weight_left = 0, 0.0, 0.0
    for at, part in enumerate(parts):
        if not isinstance(part, (tuple, list)) or len(part) != 2:
            raise InputError(f"parts[{at}]={shown(part)}: give {what}.", argument="parts")
        weight = check_number(f"parts[{at}][1]", part[1], 0, math.inf, without=(0,))
        end = min(start + check_integer(f"parts[{at}][0]", part[0], 1), horizon.steps)
        end = horizon.steps if at == len(parts) - 1 else end
        weight_now = weight if start <= step < end else weight_now
        weight_left += weight * max(0, end - max(start, step))
        start = end
    return (horizon.rollouts - spent) * weight_now / weight_left


@dataclass(frozen=True)
class DualPrice:
    """The price of a resource that a run may use on average: it rises after a step that used more
    than the target.

    This is projected online gradient descent on the dual of a budget, as in CERO (arXiv
    2606.05606). The excess is measured in targets, so the rate has no unit. Over T steps in which
    the price met no bound, the mean use exceeds the target by (last price - first price) / (rate *
    T) targets.

    Args:
        price: The current price, from 0 to `most`.
        rate: Change of the price after a step that used twice the target, positive.
        most: The highest price.

    Raises:
        InputError: a value out of range.

    >>> DualPrice(price=0.25).after(used=20, target=10)
    DualPrice(price=0.75, rate=0.5, most=4.0)
    >>> DualPrice(price=0.25).after(used=4, target=10)  # not below 0
    DualPrice(price=0.0, rate=0.5, most=4.0)
    """

    price: float = 0.0
    rate: float = 0.5
    most: float = 4.0

    def __post_init__(self) -> None:
        check_number("most", self.most, 0, math.inf, without=(0,))
        check_number("price", self.price, 0, self.most)
        check_number("rate", self.rate, 0, math.inf, without=(0,))

    def after(self, used: float, target: float) -> "DualPrice":
        """The price of the next step.

        Args:
            used: What this step used of the resource, at least 0.
            target: What a step may use on average, positive.
        """
        check_number("used", used, 0, math.inf)
        excess = used / check_number("target", target, 0, math.inf, without=(0,)) - 1
        return replace(self, price=min(max(0.0, self.price + self.rate * excess), self.most))


PACING = ("name", *(field.name for field in fields(Horizon)), "parts")
"""The settings of a pacing."""


def pacing_plan(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The settings of a pacing with their defaults, and the rollouts of each step (`Policy.plan`).

    Args:
        given: `name` ("constant" or "phases"), the arguments of `Horizon` (`low` is one portion
            unless given), and `parts` of phases.

    Raises:
        InputError: an unknown or a missing setting, or one out of range. BudgetError: the bounds
            contradict each other.

    >>> pacing_plan({"name": "phases", "rollouts": 96, "steps": 2, "quantum": 8,
    ...     "parts": [[1, 1.0], [1, 2.0]]})[1]
    (32, 64)
    """
    for key in given:
        if key not in PACING:
            raise InputError(
                f"{key} is unknown{nearest(key, PACING)} Use {', '.join(PACING)}.", argument=key
            )
    check_choice("name", name := given.get("name"), ("constant", "phases"))
    if missing := [key for key in ("rollouts", "steps") if key not in given]:
        raise InputError(f"give {' and '.join(missing)}.")
    parts = tuples(given.get("parts"))
    if (parts is None) != (name == "constant"):
        raise InputError(
            "parts", "phases needs them, as [[100, 1.0], [50, 2.0]]; constant has none.", parts
        )
    bounds = {key: value for key, value in given.items() if key not in ("name", "parts")}
    horizon = Horizon(**{"low": given.get("quantum", 1)} | bounds)
    rule = partial(constant, horizon) if parts is None else partial(phases, horizon, parts)
    return {"name": name, **asdict(horizon), "parts": parts}, tuple(horizon.plan(rule))


def tuples(value: Any) -> Any:
    """The value with its lists replaced by tuples, as in the defaults of functions.

    >>> tuples([[100, 1.0], [50, 2.0]])
    ((100, 1.0), (50, 2.0))
    """
    return tuple(map(tuples, value)) if isinstance(value, list) else value
