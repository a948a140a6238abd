"""Counts in proportion to weights, under a floor and a cap."""

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray, check_budget
from budgetalloc.errors import InputError, UnsupportedError, check_array, shown

__all__ = ["clipped_shares", "in_quanta", "largest_remainder", "proportional"]


def proportional(weights_P: ArrayLike, costs_P: ArrayLike | None, budget: Budget) -> IntArray:
    """Counts proportional to weights, under floor and cap, rounded by largest remainder (ties:
    first in the list).

    Rollouts above a cap go to the other prompts in proportion. With `floor=0`, prompts whose share
    is less than the smallest group get nothing; the lightest are dropped first. CurES (arXiv
    2510.01037), E3 (2505.18573) and Neyman allocation use this rule.

    Args:
        weights_P: Non-negative weights, shape (P,). All zero means equal.
        costs_P: Must be None, because shares are of rollouts.
        budget: Limits rollouts.

    Raises:
        BudgetError: the budget cannot be spent. InputError: a weight is negative or not finite.

    >>> proportional([3, 2, 1], None, Budget(rollouts=10, floor=1, min_group=1))
    array([5, 3, 2])
    >>> # a share of 1 is less than a group
    >>> proportional([10, 1, 1], None, Budget(rollouts=12, floor=0, cap=8))
    array([8, 4, 0])
    """
    if costs_P is not None:
        what = f"costs_P={shown(costs_P)}: proportional shares out rollouts only. Use costs_P=None."
        raise UnsupportedError(what, argument="costs_P")
    weights, total, low, high = in_quanta(weights_P, budget, "proportional")
    counts_P = np.zeros(weights.size, dtype=np.int64)
    active = np.arange(weights.size)
    if budget.fewest == 0:
        # Keep as many of the heaviest prompts as possible while the lightest of them still gets a
        # group.
        active = np.argsort(-weights, kind="stable")
        heaviest_P = np.arange(1, weights.size + 1)
        fits_P = weights[active] * total >= low * np.cumsum(weights[active]) * (1 - 1e-12)
        fits_P = (fits_P & (heaviest_P * low <= total)) | (heaviest_P <= -(-total // high))
        active = np.sort(active[: int(np.flatnonzero(fits_P)[-1]) + 1])
    counts_P[active] = largest_remainder(weights[active], total, low, high)
    return counts_P * budget.quantum


def clipped_shares(
    weights: FloatArray,
    total: int,
    low: int | IntArray | FloatArray,
    high: int | IntArray | FloatArray,
) -> FloatArray:
    """The real numbers clip(scale * weights, low, high) that add up to `total`. Weights must not be
    all zero.

    `low` and `high` are one bound for all weights, or one for each.
    """
    positive = weights / weights.max()
    np.maximum(positive, 1e-12, out=positive)
    scale = total / positive.sum()
    if np.ndim(low) or np.ndim(high):
        inside = ((low <= positive * scale) & (positive * scale <= high)).all()
    else:  # two passes, because a pool may have a million prompts
        inside = low <= positive.min() * scale and positive.max() * scale <= high
    if inside:
        positive *= scale
        return np.asarray(positive)
    # The sum of clipped shares rises with the scale. Bisection in the log domain covers any range
    # of weights.
    below = np.log(np.min(low) / 2 / positive.max() + 1e-300)
    above = np.log((np.max(high) + 1) / positive.min())
    for _ in range(200):
        middle = (below + above) / 2
        if np.clip(np.exp(middle) * positive, low, high).sum() < total:
            below = middle
        else:
            above = middle
    return np.asarray(np.clip(np.exp(above) * positive, low, high))


def largest_remainder(weights: FloatArray, total: int, low: int, high: int) -> IntArray:
    """Integers in [low, high] that add up to total, close to `clipped_shares`."""
    shares = clipped_shares(weights, total, low, high)
    counts = np.floor(shares + 1e-9).astype(np.int64)
    for sign in (1, -1):  # rounding leaves a few units to add, or to remove because of the 1e-9
        while (left := sign * (total - int(counts.sum()))) > 0:
            room = counts < high if sign > 0 else counts > low
            order = np.argsort(np.where(room, -sign * (shares - counts), np.inf), kind="stable")
            counts[order[: min(left, int(room.sum()))]] += sign
    return np.asarray(counts)


def in_quanta(
    weights_P: ArrayLike, budget: Budget, solver: str
) -> tuple[FloatArray, int, int, int]:
    """The weights as floats, or ones if all are zero; rollouts, smallest and largest group in units
    of the quantum.

    Raises an error, as `proportional` does, for weights, or a budget, that this solver cannot use.
    """
    check_budget(budget)
    if budget.rollouts is None or budget.tokens is not None or budget.quotas is not None:
        raise UnsupportedError(
            f"{budget}: {solver} shares out rollouts only. Use solver=highs for tokens and quotas."
        )
    what = "one non-negative finite weight a prompt"
    weights = check_array("weights_P", weights_P, what, copy=False)
    if weights.ndim != 1 or not weights.size or not (weights.min() >= 0 and weights.max() < np.inf):
        raise InputError("weights_P", f"give {what}.", weights_P)
    budget.check(weights.size)
    weights = weights if weights.max() > 0 else np.ones_like(weights)
    sizes = (budget.rollouts, budget.smallest_group, budget.largest_group)
    total, low, high = (size // budget.quantum for size in sizes)
    return weights, total, low, high
