"""Rules that order a step's rollouts and keep the first: mixed groups, balance, large advantages,
large variance."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.rewards import mixed_groups
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_number
from budgetalloc.methods.downselect.groups import (
    check_rows,
    first_of_groups,
    scored_first,
    share_rows,
    turn,
)

__all__ = ["balanced", "largest_advantages", "mixed_first", "top_p_variance"]


def mixed_first(
    ids_R: Sequence[Hashable],
    rewards_R: ArrayLike,
    rows: int,
    scores_RF: ArrayLike | None = None,
    success_R: ArrayLike | None = None,
) -> IntArray:
    """Rows of groups with unequal rewards, in the order of generation, then the rest (DAPO, arXiv
    2503.14476).

    DAPO drops groups of equal rewards. Here they fill the batch, which has a fixed size, if there
    are too few mixed rows; under a group baseline their advantage is 0.

    Args:
        ids_R: The prompt of each rollout, shape (R,).
        rewards_R: Rewards, shape (R,); NaN is no reward.
        rows: Rows to keep, 1 to R.
        scores_RF, success_R: Not used; accepted so that the rule can be a `Policy.keep`.

    Returns:
        Indices of the rows kept, ascending, shape (rows,).

    >>> mixed_first(["a", "a", "b", "b", "c", "c"], [1, 1, 0, 1, 0, 0], rows=4)
    array([0, 1, 2, 3])
    >>> mixed_first(["a", "a", "b", "b", "c", "c"], [1, 1, 0, 1, 0, 0], rows=2)
    array([2, 3])
    """
    group_R, rewards = check_rows(ids_R, rewards_R, rows)
    mixed_R = mixed_groups(rewards, group_R, int(group_R.max()) + 1)[group_R]
    return np.sort(np.argsort(~mixed_R, kind="stable")[:rows])


def balanced(
    ids_R: Sequence[Hashable],
    rewards_R: ArrayLike,
    rows: int,
    scores_RF: ArrayLike | None = None,
    success_R: ArrayLike | None = None,
) -> IntArray:
    """Equally many rows of every prompt, half of them successes if there are enough (Reinforce-Ada,
    2510.04996).

    A success is a row whose success is above 1/2. Ties go to the row generated first. If a prompt
    has too few rows, the other prompts keep more. Args and returns as `mixed_first`, but
    `success_R` is used: the success of each rollout in [0, 1], shape (R,); None if the rewards are
    the successes.

    >>> balanced(["a"] * 6 + ["b"] * 2, [0, 0, 0, 0, 1, 0, 1, 1], rows=4)
    array([0, 4, 6, 7])
    """
    group_R, rewards = check_rows(ids_R, rewards_R, rows)
    # Each prompt's k-th success stands next to its k-th failure: a prefix of any length is
    # balanced.
    success = rewards if success_R is None else check_rows(ids_R, success_R, rows)[1]
    kind_R = group_R * 2 + (success > 0.5)
    turn_R = turn(kind_R)
    within = np.lexsort((np.arange(len(group_R)), turn_R, group_R))
    place_R = np.empty(len(group_R), dtype=np.int64)
    place_R[within] = turn(group_R[within])
    return np.sort(np.lexsort((np.arange(len(group_R)), place_R))[:rows])


def largest_advantages(ids_R: Sequence[Hashable], advantages_R: ArrayLike, rows: int) -> IntArray:
    """The rows with the largest |advantage| in every group: completion pruning (CPPO, arXiv
    2503.22342).

    A pruning rate P keeps `rows = (1 - P) R`. Each group keeps that share of its rows, rounded by
    largest remainder. Ties go to the row generated first. Rows without an advantage (NaN) come
    last.

    Args:
        ids_R: The prompt of each rollout, shape (R,).
        advantages_R: Advantages over the whole group, shape (R,); NaN is none.
        rows: Rows to keep, 1 to R.

    Returns:
        Indices of the rows kept, ascending, shape (rows,).

    >>> largest_advantages(["a"] * 4 + ["b"] * 4, [1.5, -0.5, -0.5, -0.5, 0.9, -1.1, 0.9, -0.7], rows=4)
    array([0, 1, 4, 5])
    """
    group_R, advantages = check_rows(ids_R, advantages_R, rows, "advantages_R")
    scored, rest = scored_first(advantages, rows)
    group_K = group_R[scored]
    keep_G = share_rows(np.bincount(group_K, minlength=group_R.max() + 1), rows - len(rest))
    kept = first_of_groups(np.lexsort((-np.abs(advantages[scored]), group_K)), group_K, keep_G)
    return np.sort(np.r_[scored[kept], rest])


def top_p_variance(
    ids_R: Sequence[Hashable], rewards_R: ArrayLike, share: float = 0.9, rows: int | None = None
) -> IntArray:
    """The fewest groups whose reward variances add up to `share` of the total (RAGEN-2, arXiv
    2604.06268).

    Variances are over n - 1, and ties go to the first group. If no group varies, none is kept. With
    `rows` the result has a fixed size: rows are cut from the kept groups of least variance, or
    added from the dropped groups of least variance, which mostly have equal rewards. Rows without a
    reward come last.

    Args:
        ids_R: The prompt of each rollout, shape (R,).
        rewards_R: Rewards, shape (R,); NaN is no reward.
        share: p in (0, 1]. The default is ours.
        rows: Rows to keep, 1 to R; None keeps all rows of the groups.

    Returns:
        Indices of the rows kept, ascending.

    >>> ids, rewards = ["a"] * 4 + ["b"] * 4 + ["c"] * 4, [0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    >>> top_p_variance(ids, rewards, share=0.5)  # variances 1/3, 0, 1/4: a has 57 %
    array([0, 1, 2, 3])
    >>> top_p_variance(ids, rewards, share=0.9)
    array([ 0,  1,  2,  3,  8,  9, 10, 11])
    >>> top_p_variance(ids, rewards, share=0.5, rows=6)  # filled up from b
    array([0, 1, 2, 3, 4, 5])
    """
    share = check_number("share", share, 0, 1, without=(0,))
    group_R, rewards = check_rows(ids_R, rewards_R, len(ids_R) if rows is None else rows)
    groups, scored_R = int(group_R.max(initial=-1)) + 1, ~np.isnan(rewards)
    group_K, rewards_K = group_R[scored_R], rewards[scored_R]
    size_G = np.bincount(group_K, minlength=groups)
    mean_G = np.bincount(group_K, weights=rewards_K, minlength=groups) / np.maximum(size_G, 1)
    squares_G = np.bincount(group_K, weights=(rewards_K - mean_G[group_K]) ** 2, minlength=groups)
    # The mean of equal rewards may have a rounding error, which is no variance.
    variance_G = np.where(
        mixed_groups(rewards, group_R, groups), squares_G / np.maximum(size_G - 1, 1), 0.0
    )
    order = np.argsort(-variance_G, kind="stable")
    reached = np.cumsum(variance_G[order])
    number = (
        int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))) + 1
        if variance_G.any()
        else 0
    )
    place_G = np.empty(groups, dtype=np.int64)
    place_G[np.r_[order[:number], order[number:][::-1]]] = np.arange(groups)
    if rows is None:
        return np.flatnonzero(scored_R & (place_G[group_R] < number))
    return np.sort(np.lexsort((place_G[group_R], ~scored_R))[:rows])
