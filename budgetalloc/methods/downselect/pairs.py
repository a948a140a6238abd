"""Shuffle-R1: the best rollouts of a group paired with the worst, and pairs resampled by weight."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_integer, check_rng, shown
from budgetalloc.methods.downselect.groups import (
    check_rows,
    first_of_groups,
    scored_first,
    share_rows,
    turn,
)

__all__ = ["extreme_pairs", "pairwise_extremes", "weighted_resample"]

_MOST_DRAWN = 10**8  # random numbers of a call


def extreme_pairs(ids_R: Sequence[Hashable], advantages_R: ArrayLike, rows: int) -> IntArray:
    """Pairs of a group's largest and smallest advantage, second largest and second smallest, and so
    on.

    Pairwise trajectory sampling of Shuffle-R1 (arXiv 2508.05612) keeps the outermost pairs. Each
    group keeps the same share of its pairs, rounded by largest remainder, and all pairs if there
    are fewer than `rows // 2`. Ties go to the row generated first, in the upper half before the
    lower half.

    Args:
        ids_R: The prompt of each rollout, shape (R,).
        advantages_R: Advantages over the whole group, shape (R,); a row without one (NaN) is in no
            pair.
        rows: Rows to keep, 1 to R: `rows // 2` pairs.

    Returns:
        Rows of the pairs, the larger advantage first, shape (J, 2).

    >>> extreme_pairs(["a"] * 6, [0.3, -1.2, 1.5, 0.1, -0.4, -0.3], rows=4)
    array([[2, 1],
           [0, 4]])
    """
    group_R, advantages = check_rows(ids_R, advantages_R, rows, "advantages_R")
    scored, _ = scored_first(advantages, rows)
    size_G = np.bincount(group_R[scored], minlength=group_R.max() + 1)
    keep_G = share_rows(size_G // 2, min(rows // 2, int((size_G // 2).sum())))
    falling = scored[np.lexsort((-advantages[scored], group_R[scored]))]
    upper = turn(group_R[falling]) < size_G[group_R[falling]] // 2
    lower = np.sort(falling[~upper])
    rising = lower[np.lexsort((advantages[lower], group_R[lower]))]  # ties: the row generated first
    return np.stack(
        [first_of_groups(order, group_R, keep_G) for order in (falling, rising)], axis=1
    )


def pairwise_extremes(ids_R: Sequence[Hashable], advantages_R: ArrayLike, rows: int) -> IntArray:
    """The rows of `extreme_pairs`, ascending, shape (rows,): Shuffle-R1's first step, which keeps
    half of 2N rollouts.

    If pairs do not suffice (an odd number, or groups of one), the rows with the largest |advantage|
    among the others are added. Ties go to the row generated first, and rows without an advantage
    come last. Args as `extreme_pairs`.

    >>> pairwise_extremes(["a"] * 6, [0.3, -1.2, 1.5, 0.1, -0.4, -0.3], rows=4)
    array([0, 1, 2, 4])
    """
    kept = extreme_pairs(ids_R, advantages_R, rows).ravel()
    _, advantages = check_rows(ids_R, advantages_R, rows, "advantages_R")
    size_R = np.nan_to_num(np.abs(advantages), nan=-1.0)
    size_R[kept] = np.inf
    return np.sort(np.argsort(-size_R, kind="stable")[:rows])


def weighted_resample(
    weights_J: ArrayLike, size: int, *, draws: int = 8, rng: np.random.Generator
) -> IntArray:
    """Several draws by weight, each without replacement: Shuffle-R1's batch shuffle (arXiv
    2508.05612).

    A pair's weight is the sum of its two |advantages|. An entry appears at most once a draw, hence
    0 to `draws` times. If a draw takes more entries than have positive weights, entries of weight 0
    are added, all equally likely; the released code fails in this case.

    Args:
        weights_J: Non-negative weights, shape (J,).
        size: Entries drawn in all, shared evenly over the draws; at most J a draw.
        draws: Number of draws, 8 in the released code.
        rng: Draws one array of numbers.

    Returns:
        Indices of the entries drawn, ascending, shape (size,); they may repeat.

    >>> weighted_resample([3.0, 0.0, 1.0, 0.0], 4, draws=2, rng=np.random.default_rng(0))
    array([0, 0, 2, 2])
    >>> weighted_resample([3.0, 0.0, 0.0, 0.0], 4, draws=2, rng=np.random.default_rng(0))
    array([0, 0, 2, 3])
    """
    weights = check_array("weights_J", weights_J, "one non-negative finite weight per pair")
    if (
        weights.ndim != 1
        or not weights.size
        or not (np.isfinite(weights).all() and (weights >= 0).all())
    ):
        raise InputError(
            f"weights_J={shown(weights_J)}: give one non-negative finite weight per pair."
        )
    check_integer("draws", draws, 1, max(_MOST_DRAWN // weights.size, 1))
    check_rng(rng)
    check_integer("size", size, 1, draws * weights.size)
    # the largest keys: a draw without replacement
    keys_DJ = _log(weights) + rng.gumbel(size=(draws, weights.size))
    order_DJ = np.argsort(-keys_DJ, axis=1, kind="stable")
    sizes_D = size // draws + (np.arange(draws) < size % draws)
    return np.sort(order_DJ[np.arange(weights.size) < sizes_D[:, None]])


def _log(weights_J: FloatArray) -> FloatArray:
    """Logarithms, and for a weight of 0 a value so far below the others that noise cannot reorder
    them."""
    positive = weights_J > 0
    if not positive.any():
        return np.zeros_like(weights_J)
    return np.asarray(
        np.log(np.where(positive, weights_J, weights_J[positive].min())) - 1000.0 * ~positive
    )
