"""Spending by gain per rollout between a minimum and a maximum group size (the papers' N_low and
N_up)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.policies import View
from budgetalloc.policies.composition import spend
from budgetalloc.values import Value

UNIT = 2.0**-40  # gains are multiples of it: sums are exact, and equal gains are ties
START = 2.0**-3  # gain of the rollouts that every prompt gets first, above every other gain


def spend_gains(
    gain: Callable[[IntArray], FloatArray], start_P: IntArray, high: int, view: View
) -> IntArray:
    """Counts with the largest total gain: first `start_P` rollouts each, then by gain up to `high`,
    then evenly.

    Args:
        gain: From counts_N to the gain per unit of cost of each rollout between one count and the
            next, shape (P, N), below `START` and not rising with n.
        start_P: Rollouts that each prompt gets first, shape (P,).
        high: Most rollouts by gain, or the budget's smallest group if that is larger.
        view: The view of the decision.
    """
    price_P, high = token_prices(view), max(high, view.budget.smallest_group)

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        counts_N = np.asarray(counts_N)
        gain_PN = np.maximum(np.rint(gain(counts_N) / UNIT), 2)
        gain_PN[:, counts_N > high] = 1
        gain_PN[counts_N <= start_P[:, None]] = START / UNIT
        gain_PN *= UNIT * np.diff(counts_N, prepend=0)
        return np.cumsum(gain_PN, axis=1, out=gain_PN) * price_P[:, None]

    return spend(view.belief_P, value, view, None)


def gain_per_rollout(value: Value, belief: Belief, counts_N: ArrayLike) -> FloatArray:
    """The gain of each rollout between one count and the next, starting from 0 rollouts, shape (P,
    N).

    >>> from budgetalloc import Point, mixed_group
    >>> # 1/2, then 1/4 by one, then 3/16 by two
    >>> gain_per_rollout(mixed_group, Point([0.5]), [2, 3, 5])
    array([[0.25   , 0.25   , 0.09375]])
    """
    counts_N = np.asarray(counts_N)
    worth_PN = value(belief, np.concatenate([[0], counts_N]))
    return np.diff(worth_PN, axis=1) / np.maximum(np.diff(counts_N, prepend=0), 1)


def saturating_gain(
    speed_P: FloatArray, scale_P: FloatArray, view: View
) -> Callable[[IntArray], FloatArray]:
    """The gain per rollout of the value scale (1 - exp(-speed n))."""

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        return np.asarray(-np.expm1(-np.outer(speed_P, np.asarray(counts_N))) * scale_P[:, None])

    return lambda counts_N: gain_per_rollout(value, view.belief_P, counts_N)


def smallest(low: int, budget: Budget) -> int:
    """The smallest group of at least `low` rollouts that the budget allows."""
    return max(-(-low // budget.quantum) * budget.quantum, budget.smallest_group)


def token_prices(view: View) -> FloatArray:
    """The cost of a rollout relative to the cheapest prompt's if only tokens are limited, else 1,
    shape (P,).

    Under a budget in tokens the solver divides gains by cost; a gain times this price ranks prompts
    regardless of cost.
    """
    if view.budget.rollouts is not None or view.costs_P is None:
        return np.ones(len(view.ids_P))
    return np.asarray(view.costs_P / view.costs_P.min())
