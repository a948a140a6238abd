"""Systematic sampling: random counts whose expectation is proportional to weights. No prompt is
starved."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import blocks
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import check_rng
from budgetalloc.solvers.domains import Domains, groups_fit
from budgetalloc.solvers.proportional import clipped_shares, in_quanta, largest_remainder

__all__ = ["systematic", "systematic_in_groups", "totals_of_domains"]


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
        at_K, counts_K = _drawn(
            clipped_shares(weights, total, low if budget.fewest else 0, high), start
        )
        counts_P[at_K] = counts_K * quantum
        return counts_P
    shares = clipped_shares(weights, total, 0, high)
    # Shares of at least a whole group always get rollouts. For smaller shares, whole groups are
    # drawn.
    chosen, _ = _drawn(shares, start, low)
    while len(chosen) * low > total or len(chosen) * high < total:
        chosen = _one_more_or_less(chosen, shares, len(chosen) * low > total)
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
        _write(counts_P, grouped_K, systematic(weights_K, whole, rng))
    if part < total:
        rest = replace(budget, rollouts=total - part)
        counts_K = systematic_in_groups(weights_P[others_K], least_P[others_K], rest, rng)
        _write(counts_P, others_K, counts_K)
    return counts_P


def _write(counts_P: IntArray, at_K: IntArray, counts_K: IntArray) -> None:
    """Writes the counts of these prompts over zeros. In a large pool, most counts are 0."""
    some = np.flatnonzero(counts_K > 0)
    counts_P[at_K[some]] = counts_K[some]


def totals_of_domains(
    weights_P: FloatArray, domains: Domains, rng: np.random.Generator
) -> IntArray:
    """The rollouts of each domain: its share of the total weight, clipped to its quota and rounded
    at random.

    If groups of one are allowed, the expectation of a total is its clipped share. Otherwise, totals
    that cannot be spent in groups are replaced by the nearest that can. Each call draws one number.

    >>> budget = Budget(rollouts=16, floor=0, min_group=1, quotas={"code": (8, 12)})
    >>> domains = Domains.of(["math", "math", "code"], budget)
    >>> totals_of_domains(np.array([3.0, 2.0, 1.0]), domains, np.random.default_rng(0))
    array([8, 8])
    """
    weights_D = np.array([float(weights_P[rows].sum()) for rows in domains.rows_D])
    if not weights_D.any():
        weights_D = np.array([float(len(rows)) for rows in domains.rows_D])
    quantum, start = domains.budget.quantum, float(rng.random())
    total = int(domains.budget.rollouts or 0) // quantum
    low_D, high_D = domains.low_D // quantum, domains.high_D // quantum
    at_K, counts_K = _drawn(clipped_shares(weights_D, total, low_D, high_D), start)
    counts_D = np.zeros(len(weights_D), dtype=np.int64)
    counts_D[at_K] = quantum * counts_K
    return domains.spendable(counts_D)


def _drawn(shares: FloatArray, start: float, group: int = 1) -> tuple[IntArray, IntArray]:
    """The places whose share, rounded down or up, is not 0, and these counts: of groups, 0 or 1, if
    `group` > 1.

    A share's count is the number of positions `start`, `start + 1`, ... in its part of the
    cumulative shares.
    """
    close, total, before = 1e-9 * max(1.0, float(shares.sum()) / group), 0.0, 0.0
    places, counts = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for block in blocks(len(shares)):
        part = shares[block].copy() if group == 1 else np.minimum(shares[block] / group, 1.0)
        part[0] += total
        end = np.cumsum(part, out=part)
        total = end[-1]
        whole = np.rint(end)
        end = np.where(np.abs(whole - end) < close, whole, end)
        # An end plus a start just below 1 may be rounded up, so the count is limited by the ceiling
        # of the end.
        until = np.minimum(np.floor(end + start), np.ceil(end))
        count = np.diff(until, prepend=before)
        before = until[-1]
        some = np.flatnonzero(count > 0)  # several times as fast as without the comparison
        places.append(block.start + some)
        counts.append(count[some])
    return np.concatenate(places), np.concatenate(counts).astype(np.int64)


def _one_more_or_less(chosen: IntArray, shares: FloatArray, less: bool) -> IntArray:
    """The choice without the prompt of smallest share, or with the unchosen prompt of largest
    share."""
    if less:
        return np.delete(chosen, int(np.argmin(shares[chosen])))
    rest = np.setdiff1d(np.arange(shares.size), chosen)
    return np.sort(np.append(chosen, rest[int(np.argmax(shares[rest]))]))
