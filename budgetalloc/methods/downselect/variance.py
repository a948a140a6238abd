"""The rows whose rewards or advantages vary most: PODS inside a group, D3S over the whole batch."""

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_flag, check_number
from budgetalloc.methods.downselect.groups import check_rows, scored_first, share_rows, turn

__all__ = ["d3s_schedule", "max_variance"]


def max_variance(
    ids_R: Sequence[Hashable], values_R: ArrayLike, rows: int, *, across: bool = False
) -> IntArray:
    """The rows whose values have the largest variance, within each group or over the whole batch.

    Within groups, with rewards: PODS (arXiv 2504.13818); with advantages: the first form of D3S
    (2509.22115). Over the batch, with advantages normalised within groups: the cross-group rule of
    D3S, which keeps rare successes and rare failures and drops groups of equal rewards. The best
    subset is the lowest j and the highest `rows - j` values for some j, found by prefix sums in O(R
    log R).

    Within groups, each group keeps the share `rows / R` of its rows, rounded by largest remainder.
    Ties between splits go to the split with more high values, ties between values to the row
    generated first. Rows without a value (NaN) come last.

    Args:
        ids_R: The prompt of each rollout, shape (R,).
        values_R: Rewards or advantages, shape (R,); NaN is none.
        rows: Rows to keep, 1 to R.
        across: Whether to choose over the whole batch.

    Returns:
        Indices of the rows kept, ascending, shape (rows,).

    >>> max_variance(["a"] * 6, [0.0, 0.5, 0.2, 1.0, 0.9, 0.4], rows=4)
    array([0, 2, 3, 4])
    >>> advantages = [2.5, -0.4, -0.4, -0.4, -0.4, -0.4, 0, 0, 0, 0, 0, 0]
    >>> max_variance(["rare"] * 6 + ["never"] * 6, advantages, rows=2, across=True)
    array([0, 1])
    """
    check_flag("across", across)
    group_R, values = check_rows(ids_R, values_R, rows, "values_R")
    scored, rest = scored_first(values, rows)
    if not len(scored):
        return rest
    _, group_K = np.unique(
        np.zeros_like(scored) if across else group_R[scored], return_inverse=True
    )
    keep_G = share_rows(np.bincount(group_K), rows - len(rest))
    return np.sort(np.r_[scored[_spread(group_K, values[scored], keep_G)], rest])


def _spread(group_R: IntArray, values_R: FloatArray, keep_G: IntArray) -> IntArray:
    """The `keep_G` rows with the largest variance of each group, of which none is empty."""
    order = np.lexsort((values_R, group_R))  # ascending in each group, equal values as generated
    ordered, size_G = values_R[order], np.bincount(group_R)
    end_G = np.cumsum(size_G)
    start_G = end_G - size_G
    # Values are centred and scaled to 1: the prefix sums are precise, and exactly 0 if all values
    # are equal.
    middle_G = ordered[start_G + size_G // 2]
    scale_G = np.maximum(ordered[end_G - 1] - middle_G, middle_G - ordered[start_G])
    unit = (ordered - np.repeat(middle_G, size_G)) / np.repeat(
        np.where(scale_G > 0, scale_G, 1.0), size_G
    )
    sums, squares = np.r_[0.0, np.cumsum(unit)], np.r_[0.0, np.cumsum(unit**2)]

    # Each split of each group, as flat arrays L: the `low` lowest and the `keep - low` highest.
    splits_G = keep_G + 1
    first_G = np.cumsum(splits_G) - splits_G
    group_L = np.repeat(np.arange(len(keep_G)), splits_G)
    low_L = np.arange(len(group_L)) - first_G[group_L]
    start_L, end_L, keep_L = start_G[group_L], end_G[group_L], keep_G[group_L]
    high_L = end_L - (keep_L - low_L)

    def kept(prefix: FloatArray) -> FloatArray:
        return np.asarray(
            prefix[start_L + low_L] - prefix[start_L] + prefix[end_L] - prefix[high_L]
        )

    spread_L = keep_L * kept(squares) - kept(sums) ** 2  # keep^2 times the variance
    best_G = np.maximum.reduceat(spread_L, first_G)
    best = np.flatnonzero(spread_L >= best_G[group_L] - 1e-9 * np.abs(best_G[group_L]))
    low_G = low_L[best[turn(group_L[best]) == 0]]  # the first of equally good splits

    place = np.arange(len(order)) - np.repeat(start_G, size_G)
    taken = (place < np.repeat(low_G, size_G)) | (
        place >= np.repeat(size_G - keep_G + low_G, size_G)
    )
    same = np.r_[True, (ordered[1:] != ordered[:-1]) | (group_R[order[1:]] != group_R[order[:-1]])]
    # runs of equal values of a group: as many as were taken, the first generated
    run = np.cumsum(same) - 1
    return np.asarray(order[turn(run) < np.bincount(run, weights=taken)[run]])


def d3s_schedule(progress: float, first: float, last: float) -> float:
    """D3S' schedule: linear from `first` at the start of training to `last` at its end (arXiv
    2509.22115).

    The paper increases the number of rows and the share of tokens kept in this way. We did not find
    its start and end values.

    Args:
        progress: Completed share of training, in [0, 1].
        first, last: The scheduled quantity at the start and at the end.

    >>> d3s_schedule(0.25, 8, 16)
    10.0
    """
    progress = check_number("progress", progress, 0, 1)
    first = check_number("first", first, -math.inf, math.inf)
    last = check_number("last", last, -math.inf, math.inf)
    return (1 - progress) * first + progress * last
