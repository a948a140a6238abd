"""Counts in proportion to weights, under a floor and a cap: rounded by largest remainder, or drawn
by systematic sampling, which starves no prompt."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray, check_budget, groups_fit
from budgetalloc.errors import (
    InputError,
    UnsupportedError,
    check_array,
    check_rng,
    keywords,
    short_repr,
)


@keywords
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
        raise UnsupportedError(
            f"costs_P={short_repr(costs_P)}: proportional shares out rollouts only. Use "
            "costs_P=None.",
            argument="costs_P",
        )
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
    quantum, low, high = budget.quantum, budget.smallest_group, budget.largest_group
    return weights, budget.rollouts // quantum, low // quantum, high // quantum


def systematic(weights_P: ArrayLike, budget: Budget, rng: np.random.Generator) -> IntArray:
    """Counts drawn by systematic sampling (Madow, 1949). Each is its share rounded down or up, and
    the sum is exact.

    Shares are proportional to the weights under floor and cap. If groups of one are allowed
    (`min_group` at most `quantum`), the expectation of a count is exactly its share. Larger groups
    are drawn whole, and the sum of all deviations is at most one group. Every prompt of positive
    weight is drawn eventually, unlike with a solver.

    Args:
        weights_P: Non-negative weights, shape (P,). All zero means equal.
        budget: Limits rollouts.
        rng: The generator. Each call draws one number.

    Raises:
        BudgetError: the budget cannot be spent. InputError: a weight is negative or not finite.
            UnsupportedError: the budget limits tokens, or has quotas.

    >>> rng = np.random.default_rng(0)
    >>> systematic([4, 2, 1, 1], Budget(rollouts=8, floor=0, min_group=1), rng)
    array([4, 2, 1, 1])
    >>> np.mean([systematic([3, 1, 1], Budget(rollouts=1, floor=0, min_group=1), rng)
    ...     for _ in range(2000)], axis=0)
    array([0.5925, 0.198 , 0.2095])
    """
    check_rng(rng)
    weights, total, low, high = in_quanta(weights_P, budget, "systematic sampling")
    quantum, start = budget.quantum, float(rng.random())
    counts_P = np.zeros(weights.size, dtype=np.int64)
    if budget.fewest or low == 1:
        at_K, counts_K = drawn(
            clipped_shares(weights, total, low if budget.fewest else 0, high), start
        )
        counts_P[at_K] = counts_K * quantum
        return counts_P
    shares = clipped_shares(weights, total, 0, high)
    # Shares of at least a whole group always get rollouts. For smaller shares, whole groups are
    # drawn.
    chosen, _ = drawn(shares, start, low)
    while len(chosen) * low > total:
        chosen = np.delete(chosen, int(np.argmin(shares[chosen])))
    while len(chosen) * high < total:
        rest = np.setdiff1d(np.arange(shares.size), chosen)
        chosen = np.sort(np.append(chosen, rest[int(np.argmax(shares[rest]))]))
    counts_P[chosen] = quantum * largest_remainder(
        np.maximum(shares[chosen], low), total, low, high
    )
    return counts_P


def systematic_in_groups(
    weights_P: FloatArray, least_P: IntArray, budget: Budget, rng: np.random.Generator
) -> IntArray:
    """Counts drawn by `systematic`, with a smallest group for each prompt, shape (P,).

    The rollouts are divided between the prompts of the largest `least_P` and the others in
    proportion to their total weights. The first part is rounded up or down at random to whole
    groups. The second part is divided in the same way. The counts are those of `systematic` if
    `budget` has a floor, already has groups of that size, or cannot hold them.

    `least_P` should have few distinct values, which are at least 1.

    >>> budget, least_P = Budget(rollouts=16, floor=0, min_group=1), np.array([4, 4, 4, 4, 1, 1])
    >>> systematic_in_groups(np.array([1, 1, 1, 1, 2, 2.0]), least_P, budget,
    ...     np.random.default_rng(0))
    array([0, 4, 0, 4, 4, 4])
    """
    group = int(least_P.max())
    least = -(-max(group, budget.smallest_group) // budget.quantum) * budget.quantum
    if budget.rollouts is None or budget.fewest or least == budget.smallest_group:
        return systematic(weights_P, budget, rng)  # raises for a budget without rollouts
    grouped_P = least_P == group
    grouped_K, others_K = np.flatnonzero(grouped_P), np.flatnonzero(~grouped_P)
    weights_K = weights_P[grouped_K]
    total, most, part = budget.rollouts, budget.largest_group, budget.rollouts
    if others_K.size:
        share = float(weights_K.sum() / weights_P.sum())
        groups = int(share * total / least + rng.random())
        # the others may not take all of the rest
        needed = -(-(total - others_K.size * most) // least)
        part = least * max(min(groups, grouped_K.size, total // least), needed)
    grouped_fit = groups_fit(part, grouped_K.size, least, most)
    if not grouped_fit or not groups_fit(total - part, others_K.size, budget.smallest_group, most):
        return systematic(weights_P, budget, rng)
    counts_P = np.zeros(len(weights_P), dtype=np.int64)
    if part:
        whole = replace(budget, rollouts=part, min_group=least)
        counts_P[grouped_K] = systematic(weights_K, whole, rng)
    if part < total:
        rest = replace(budget, rollouts=total - part)
        counts_K = systematic_in_groups(weights_P[others_K], least_P[others_K], rest, rng)
        counts_P[others_K] = counts_K
    return counts_P


def drawn(shares: FloatArray, start: float, group: int = 1) -> tuple[IntArray, IntArray]:
    """The places whose share, rounded down or up, is not 0, and these counts: of groups, 0 or 1, if
    `group` > 1.

    A share's count is the number of positions `start`, `start + 1`, ... in its part of the
    cumulative shares.
    """
    close = 1e-9 * max(1.0, float(shares.sum()) / group)
    end = np.cumsum(shares if group == 1 else np.minimum(shares / group, 1.0))
    whole = np.rint(end)
    end = np.where(np.abs(whole - end) < close, whole, end)
    # An end plus a start just below 1 may be rounded up, so the count is limited by the ceiling of
    # the end.
    counts = np.diff(np.minimum(np.floor(end + start), np.ceil(end)), prepend=0.0)
    places = np.flatnonzero(counts > 0)  # several times as fast as without the comparison
    return places, counts[places].astype(np.int64)
