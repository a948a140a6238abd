"""Distribution of a run's rollouts over its steps.

A rule proposes a number of rollouts, and `Horizon.fit` turns it into a count for the step that keeps the run's total:

    horizon = Horizon(rollouts=38_400, steps=150, low=128, high=512)
    count = horizon.fit(constant(horizon, step, spent), step, spent)      # or phases, or the demand at a price
    counts_P = policy.allocate(ids_P, Budget(rollouts=count, floor=0))
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import (
    BudgetError,
    InputError,
    check_array,
    check_function,
    check_integer,
    check_list,
    check_number,
    check_type,
    shown,
)

__all__ = ["DualPrice", "Horizon", "Threshold", "constant", "phases"]


@dataclass(frozen=True)
class Horizon:
    """The rollouts of a training run, and the bounds of one step.

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
    >>> horizon.fit(0, step=1, spent=50), horizon.fit(0, step=2, spent=70)  # the last step takes what is left
    (20, 30)
    """

    rollouts: int
    steps: int
    low: int = 1
    high: int | None = None
    quantum: int = 1

    def __post_init__(self) -> None:
        check_integer("quantum", self.quantum, 1)
        check_integer("steps", self.steps, 1)
        high = {} if self.high is None else {"high": (self.high, 1)}
        for name, (value, least) in {"rollouts": (self.rollouts, 1), "low": (self.low, 0), **high}.items():
            if check_integer(name, value, least) % self.quantum:
                raise BudgetError(f"{self}: {name}={value} is not a multiple of quantum={self.quantum}.")
        portions = self.rollouts // self.quantum
        if self.steps * self.low > self.rollouts:
            raise BudgetError(
                f"{self}: {self.steps} steps of at least {self.low} need {self.steps * self.low} rollouts. "
                f"Use low={portions // self.steps * self.quantum} or less."
            )
        if self.high is not None and self.steps * self.high < self.rollouts:
            raise BudgetError(
                f"{self}: {self.steps} steps of at most {self.high} spend {self.steps * self.high} rollouts. "
                f"Use high={-(-portions // self.steps) * self.quantum} or more."
            )

    def bounds(self, step: int, spent: int) -> tuple[int, int]:
        """Fewest and most rollouts of this step with which the later steps can spend the rest exactly.

        Args:
            step: From 0.
            spent: Rollouts of the steps before it.
        """
        check_integer("step", step, 0, self.steps - 1)
        check_integer("spent", spent, 0, self.rollouts)
        later, left = self.steps - step - 1, self.rollouts - spent
        high = self.rollouts if self.high is None else self.high
        fewest, most = max(self.low, left - later * high), min(high, left - later * self.low)
        if fewest > most or spent % self.quantum:
            raise BudgetError(
                f"{self}: {spent} rollouts before step {step} leave {left} for {later + 1} steps, which the bounds do "
                "not allow. Spend at each step what fit() returns."
            )
        return fewest, most

    def fit(self, wish: float, step: int, spent: int) -> int:
        """The rollouts of this step: the multiple of `quantum` within the bounds that is nearest to the proposal."""
        if not isinstance(wish, (int, float, np.integer, np.floating)) or wish != wish:
            raise InputError(f"wish={shown(wish)}: use a number of rollouts.")
        fewest, most = self.bounds(step, spent)
        wish = min(max(wish, fewest), most)
        return min(max(math.floor(wish / self.quantum + 0.5) * self.quantum, fewest), most)

    def plan(self, rule: Callable[[int, int], float]) -> list[int]:
        """The rollouts of every step, where each step proposes `rule(step, spent)`; for at most a million steps.

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

    Args:
        horizon: Horizon of the run.
        parts: Steps and weight of each phase in order; the last phase continues to the end of the run.
        step, spent: As in `Horizon.bounds`.

    >>> horizon = Horizon(rollouts=100, steps=4)
    >>> phases(horizon, [(2, 1), (2, 4)], 0, 0), phases(horizon, [(2, 1), (2, 4)], 2, 20)
    (10.0, 40.0)
    """
    check_type("horizon", horizon, Horizon, "a Horizon")
    horizon.bounds(step, spent)
    what = "the steps and the weight of each phase, such as [(100, 1.0), (50, 2.0)]"
    if not check_list("parts", parts, what):
        raise InputError(f"parts={shown(parts)}: give at least one phase, such as (100, 1.0).")
    start, weight_now, weight_left = 0, 0.0, 0.0
    for at, part in enumerate(parts):
        if not isinstance(part, (tuple, list)) or len(part) != 2:
            raise InputError(f"parts[{at}]={shown(part)}: give {what}.")
        steps, part_weight = part
        weight = check_number(f"parts[{at}][1]", part_weight, 0, math.inf, without=(0,))
        end = min(start + check_integer(f"parts[{at}][0]", steps, 1), horizon.steps)
        end = horizon.steps if at == len(parts) - 1 else end
        weight_now = weight if start <= step < end else weight_now
        weight_left += weight * max(0, end - max(start, step))
        start = end
    return (horizon.rollouts - spent) * weight_now / weight_left


@dataclass(frozen=True)
class DualPrice:
    """A price of a rollout that moves over the run: a step takes every rollout that gains more than the price.

    CERO (arXiv 2606.05606) moves the price by projected online gradient descent, with a step of 1 / sqrt(K) over K
    steps. The price rises after a step that took more than its mean share of the budget, and falls, not below 0, after
    one that took less. Measuring the excess in mean shares and the price in units of `scale` is our choice.

    Args:
        price: The current price, at least 0.
        scale: Approximate gain of a marginal rollout, positive.

    >>> horizon, dual = Horizon(rollouts=40, steps=4, low=0), DualPrice(price=0.25)
    >>> dual.demand([0.5, 0.3, 0.2, 0.1])
    2
    >>> dual.after(20, horizon)  # twice the mean share of 10: the price rises by 1 / sqrt(4)
    DualPrice(price=0.75, scale=1.0)
    """

    price: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("price", self.price, 0, math.inf)
        check_number("scale", self.scale, 0, math.inf, without=(0,))

    def demand(self, gains_R: ArrayLike) -> int:
        """The number of rollouts that gain more than the price.

        Args:
            gains_R: Gain of each rollout on offer, any shape. For a concave value,
                `np.diff(value(belief_P, np.arange(65)))` has the gains of up to 64 rollouts of each prompt.
        """
        return int((_check_gains(gains_R) > self.price).sum())

    def after(self, demand: float, horizon: Horizon) -> "DualPrice":
        """The price of the next step. The demand is clipped to the bounds of a step."""
        check_type("horizon", horizon, Horizon, "a Horizon")
        high = horizon.rollouts if horizon.high is None else horizon.high
        taken = min(max(check_number("demand", demand, 0, math.inf), horizon.low), high)
        excess = taken / (horizon.rollouts / horizon.steps) - 1
        return replace(self, price=max(0.0, self.price + self.scale * excess / math.sqrt(horizon.steps)))


@dataclass(frozen=True)
class Threshold:
    """The online-knapsack threshold of Zhou, Chakrabarty and Lukose, which rises with the share of the budget spent.

    Gains of a rollout lie in [lowest, highest] = [L, U]. With a share z spent, a rollout is taken if its gain is at
    least Psi(z) = (U e / L)^z L / e. In the limit of small portions, the best choice in hindsight gains at most
    ln(U / L) + 1 times as much. arXiv 2510.16499 applies it. The guarantee holds only while `Horizon.fit` returns the
    demand: use `low=0`.

    Args:
        lowest, highest: Bounds of the gain of a rollout, positive.

    >>> rule = Threshold(lowest=0.1, highest=1.0)
    >>> [round(rule.psi(z), 4) for z in (0, 0.5, 1)], round(rule.ratio, 3)
    ([0.0368, 0.1918, 1.0], 3.303)
    >>> rule.demand([0.5, 0.05, 0.3, 0.9], spent=70, rollouts=100)  # psi(0.7) = 0.371
    2
    """

    lowest: float
    highest: float

    def __post_init__(self) -> None:
        check_number("lowest", self.lowest, 0, math.inf, without=(0,))
        check_number("highest", self.highest, self.lowest, math.inf)

    @property
    def ratio(self) -> float:
        """The competitive ratio, ln(U / L) + 1."""
        return math.log(self.highest / self.lowest) + 1

    def psi(self, share: float) -> float:
        """The smallest gain that is taken after this share of the budget has been spent."""
        return self.lowest * math.exp(check_number("share", share, 0, 1) * self.ratio - 1)

    def demand(self, gains_R: ArrayLike, spent: int, rollouts: int) -> int:
        """The number of a step's rollouts to take, the largest gains first; never more than are left.

        Args:
            gains_R: As in `DualPrice.demand`.
            spent: Rollouts before this step.
            rollouts: Rollouts of the whole run.
        """
        check_integer("spent", spent, 0, check_integer("rollouts", rollouts, 1))
        gains_R = np.sort(_check_gains(gains_R).ravel())[::-1][: rollouts - spent]
        shares_R = (spent + np.arange(len(gains_R))) / rollouts
        return int((gains_R >= self.lowest * np.exp(shares_R * self.ratio - 1)).sum())


def _check_gains(gains: ArrayLike) -> FloatArray:
    gains_R = check_array("gains_R", gains, "a number for each rollout")
    if np.isnan(gains_R).any():
        raise InputError("gains_R holds NaN: give a number for each rollout.")
    return gains_R
