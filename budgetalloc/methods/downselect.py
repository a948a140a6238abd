"""Selection of the generated rollouts to train on: pure functions from a step's rows to the rows
kept.

All take the prompt of each rollout, `ids_R`, and the rewards or advantages of the rollouts over
their whole group, with NaN for none, shape (R,). They return the indices of `rows` rows (1 to R),
ascending. Ties go to the row generated first. Rows without a reward or an advantage come last. A
group keeps the share `rows / R` of its rows, rounded by largest remainder, unless its function says
otherwise. `InputError`: lengths that differ, values that are not finite, or other `rows`.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import check_ids, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import as_rewards, mixed_groups
from budgetalloc.budget import IntArray
from budgetalloc.errors import (
    InputError,
    check_array,
    check_flag,
    check_integer,
    check_number,
    check_rng,
)

_MOST_DRAWN = 10**8  # random numbers of a call


def check_rows(
    ids_R: Sequence[Hashable], values_R: ArrayLike, rows: int, name: str = "rewards_R"
) -> tuple[IntArray, FloatArray]:
    """The group of each row and its value; raises `InputError` unless `rows` of them can be
    kept."""
    ids = check_ids(ids_R, "ids_R")
    values = as_rewards(values_R, len(ids), name)
    whole = isinstance(rows, (int, np.integer)) and not isinstance(rows, bool)
    if not whole or not 1 <= rows <= len(ids):
        raise InputError(
            "rows", f"there are {len(ids)} rollouts to choose from. Use 1 to {len(ids)}.", rows
        )
    return factorize(ids)[1], values


def turn(labels_R: IntArray) -> IntArray:
    """The number of earlier rows with the same label, for each row.

    >>> turn(np.array([5, 7, 5, 5]))
    array([0, 0, 1, 2])
    """
    order = np.argsort(labels_R, kind="stable")
    ordered = labels_R[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
    sizes = np.diff(np.r_[starts, len(labels_R)])
    turn_R = np.empty(len(labels_R), dtype=np.int64)
    turn_R[order] = np.arange(len(labels_R)) - np.repeat(starts, sizes)
    return turn_R


def _scored_first(values_R: FloatArray, rows: int) -> tuple[IntArray, IntArray]:
    """The rows that have a value, and the first rows without one (NaN) that complete them to
    `rows`."""
    scored = np.flatnonzero(~np.isnan(values_R))
    return scored, np.flatnonzero(np.isnan(values_R))[: max(rows - len(scored), 0)]


def _share_rows(sizes_G: IntArray, rows: int) -> IntArray:
    """`rows` divided among groups in proportion to their sizes, by largest remainder; ties go to
    the first group.

    >>> _share_rows(np.array([8, 8, 4]), rows=11)
    array([5, 4, 2])
    """
    share_G, left_G = np.divmod(rows * sizes_G, max(int(sizes_G.sum()), 1))
    share_G[np.argsort(-left_G, kind="stable")[: rows - int(share_G.sum())]] += 1
    return np.asarray(share_G)


def _first_of_groups(order: IntArray, group_R: IntArray, keep_G: IntArray) -> IntArray:
    """The first `keep_G` rows of each group, from rows sorted by group."""
    return np.asarray(order[turn(group_R[order]) < keep_G[group_R[order]]])


def mixed_first(
    ids_R: Sequence[Hashable],
    rewards_R: ArrayLike,
    rows: int,
    scores_RF: ArrayLike | None = None,
    success_R: ArrayLike | None = None,
) -> IntArray:
    """Rows of groups with unequal rewards, in the order of generation, then the rest (DAPO, arXiv
    2503.14476).

    DAPO drops groups of equal rewards. Here they fill the batch if there are too few mixed rows;
    under a group baseline their advantage is 0. `scores_RF` and `success_R` are not used.

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

    A success is a row whose success (`success_R`, or else the reward) is above 1/2. If a prompt has
    too few rows, the other prompts keep more. `scores_RF` is not used.

    >>> balanced(["a"] * 6 + ["b"] * 2, [0, 0, 0, 0, 1, 0, 1, 1], rows=4)
    array([0, 4, 6, 7])
    """
    group_R, rewards = check_rows(ids_R, rewards_R, rows)
    # Each prompt's k-th success stands next to its k-th failure: a prefix of any length is
    # balanced.
    success = rewards if success_R is None else check_rows(ids_R, success_R, rows)[1]
    turn_R = turn(group_R * 2 + (success > 0.5))
    within = np.lexsort((np.arange(len(group_R)), turn_R, group_R))
    place_R = np.empty(len(group_R), dtype=np.int64)
    place_R[within] = turn(group_R[within])
    return np.sort(np.lexsort((np.arange(len(group_R)), place_R))[:rows])


def largest_advantages(ids_R: Sequence[Hashable], advantages_R: ArrayLike, rows: int) -> IntArray:
    """The rows with the largest |advantage| in every group: completion pruning (CPPO, arXiv
    2503.22342). A pruning rate P keeps `rows = (1 - P) R`.

    >>> advantages_R = [1.5, -0.5, -0.5, -0.5, 0.9, -1.1, 0.9, -0.7]
    >>> largest_advantages(["a"] * 4 + ["b"] * 4, advantages_R, rows=4)
    array([0, 1, 4, 5])
    """
    group_R, advantages = check_rows(ids_R, advantages_R, rows, "advantages_R")
    scored, rest = _scored_first(advantages, rows)
    group_K = group_R[scored]
    keep_G = _share_rows(np.bincount(group_K, minlength=group_R.max() + 1), rows - len(rest))
    kept = _first_of_groups(np.lexsort((-np.abs(advantages[scored]), group_K)), group_K, keep_G)
    return np.sort(np.r_[scored[kept], rest])


def top_p_variance(
    ids_R: Sequence[Hashable], rewards_R: ArrayLike, share: float = 0.9, rows: int | None = None
) -> IntArray:
    """The fewest groups whose reward variances add up to `share` of the total (RAGEN-2, arXiv
    2604.06268).

    Variances are over n - 1. If no group varies, none is kept. With `rows`, rows are cut from the
    kept groups of least variance, or added from the dropped groups of least variance, which mostly
    have equal rewards; without, all rows of the groups are kept. The default of p, `share` in (0,
    1], is ours.

    >>> ids, rewards = ["a"] * 4 + ["b"] * 4 + ["c"] * 4, [0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    >>> top_p_variance(ids, rewards, share=0.5)  # variances 1/3, 0, 1/4: a has 57 %
    array([0, 1, 2, 3])
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
    mixed_G = mixed_groups(rewards, group_R, groups)
    variance_G = np.where(mixed_G, squares_G / np.maximum(size_G - 1, 1), 0.0)
    order, number = np.argsort(-variance_G, kind="stable"), 0
    if variance_G.any():
        reached = np.cumsum(variance_G[order])
        number = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))) + 1
    place_G = np.empty(groups, dtype=np.int64)
    place_G[np.r_[order[:number], order[number:][::-1]]] = np.arange(groups)
    if rows is None:
        return np.flatnonzero(scored_R & (place_G[group_R] < number))
    return np.sort(np.lexsort((place_G[group_R], ~scored_R))[:rows])


def max_variance(
    ids_R: Sequence[Hashable], values_R: ArrayLike, rows: int, *, across: bool = False
) -> IntArray:
    """The rows whose values have the largest variance, within each group or over the whole batch.

    Within groups, with rewards: PODS (arXiv 2504.13818); with advantages: the first form of D3S
    (2509.22115). Over the batch (`across`), with advantages normalised within groups: the
    cross-group rule of D3S, which keeps rare successes and rare failures and drops groups of equal
    rewards. The best subset is the lowest j and the highest `rows - j` values for some j, found by
    prefix sums in O(R log R). Of equally good splits, the one with more high values is taken.

    >>> max_variance(["a"] * 6, [0.0, 0.5, 0.2, 1.0, 0.9, 0.4], rows=4)
    array([0, 2, 3, 4])
    >>> advantages = [2.5, -0.4, -0.4, -0.4, -0.4, -0.4, 0, 0, 0, 0, 0, 0]
    >>> max_variance(["rare"] * 6 + ["never"] * 6, advantages, rows=2, across=True)
    array([0, 1])
    """
    check_flag("across", across)
    group_R, values = check_rows(ids_R, values_R, rows, "values_R")
    scored, rest = _scored_first(values, rows)
    if not len(scored):
        return rest
    _, group_K = np.unique(
        np.zeros_like(scored) if across else group_R[scored], return_inverse=True
    )
    keep_G = _share_rows(np.bincount(group_K), rows - len(rest))
    return np.sort(np.r_[scored[_most_spread(group_K, values[scored], keep_G)], rest])


def _most_spread(group_R: IntArray, values_R: FloatArray, keep_G: IntArray) -> IntArray:
    """The `keep_G` rows with the largest variance of each group, of which none is empty."""
    order = np.lexsort((values_R, group_R))  # ascending in each group, equal values as generated
    ordered, size_G = values_R[order], np.bincount(group_R)
    end_G = np.cumsum(size_G)
    start_G = end_G - size_G
    # Values are centred and scaled to 1: the prefix sums are precise, and exactly 0 if all values
    # are equal.
    middle_G = ordered[start_G + size_G // 2]
    scale_G = np.maximum(ordered[end_G - 1] - middle_G, middle_G - ordered[start_G])
    scale_G = np.where(scale_G > 0, scale_G, 1.0)
    unit = (ordered - np.repeat(middle_G, size_G)) / np.repeat(scale_G, size_G)
    sums, squares = np.r_[0.0, np.cumsum(unit)], np.r_[0.0, np.cumsum(unit**2)]

    # Each split of each group, as flat arrays L: the `low` lowest and the `keep - low` highest.
    splits_G = keep_G + 1
    first_G = np.cumsum(splits_G) - splits_G
    group_L = np.repeat(np.arange(len(keep_G)), splits_G)
    low_L = np.arange(len(group_L)) - first_G[group_L]
    start_L, end_L, keep_L = start_G[group_L], end_G[group_L], keep_G[group_L]
    high_L = end_L - (keep_L - low_L)

    def kept(prefix: FloatArray) -> FloatArray:
        lowest = prefix[start_L + low_L] - prefix[start_L]
        return np.asarray(lowest + prefix[end_L] - prefix[high_L])

    spread_L = keep_L * kept(squares) - kept(sums) ** 2  # keep^2 times the variance
    best_G = np.maximum.reduceat(spread_L, first_G)
    best = np.flatnonzero(spread_L >= best_G[group_L] - 1e-9 * np.abs(best_G[group_L]))
    low_G = low_L[best[turn(group_L[best]) == 0]]  # the first of equally good splits

    place = np.arange(len(order)) - np.repeat(start_G, size_G)
    taken = place < np.repeat(low_G, size_G)
    taken |= place >= np.repeat(size_G - keep_G + low_G, size_G)
    same = np.r_[True, (ordered[1:] != ordered[:-1]) | (group_R[order[1:]] != group_R[order[:-1]])]
    # runs of equal values of a group: as many as were taken, the first generated
    run = np.cumsum(same) - 1
    return np.asarray(order[turn(run) < np.bincount(run, weights=taken)[run]])


def extreme_pairs(ids_R: Sequence[Hashable], advantages_R: ArrayLike, rows: int) -> IntArray:
    """Pairs of a group's largest and smallest advantage, second largest and second smallest, and so
    on: `rows // 2` pairs, the larger advantage first, shape (J, 2).

    Pairwise trajectory sampling of Shuffle-R1 (arXiv 2508.05612) keeps the outermost pairs. Each
    group keeps the same share of its pairs, and all pairs if there are fewer than `rows // 2`.

    >>> extreme_pairs(["a"] * 6, [0.3, -1.2, 1.5, 0.1, -0.4, -0.3], rows=4)
    array([[2, 1],
           [0, 4]])
    """
    group_R, advantages = check_rows(ids_R, advantages_R, rows, "advantages_R")
    scored, _ = _scored_first(advantages, rows)
    size_G = np.bincount(group_R[scored], minlength=group_R.max() + 1)
    keep_G = _share_rows(size_G // 2, min(rows // 2, int((size_G // 2).sum())))
    falling = scored[np.lexsort((-advantages[scored], group_R[scored]))]
    upper = turn(group_R[falling]) < size_G[group_R[falling]] // 2
    lower = np.sort(falling[~upper])
    rising = lower[np.lexsort((advantages[lower], group_R[lower]))]  # ties: the row generated first
    halves = [_first_of_groups(order, group_R, keep_G) for order in (falling, rising)]
    return np.stack(halves, axis=1)


def pairwise_extremes(ids_R: Sequence[Hashable], advantages_R: ArrayLike, rows: int) -> IntArray:
    """The rows of `extreme_pairs`: Shuffle-R1's first step, which keeps half of 2N rollouts.

    If pairs do not suffice (an odd number, or groups of one), the rows with the largest |advantage|
    among the others are added.

    >>> pairwise_extremes(["a"] * 6, [0.3, -1.2, 1.5, 0.1, -0.4, -0.3], rows=4)
    array([0, 1, 2, 4])
    """
    kept = extreme_pairs(ids_R, advantages_R, rows).ravel()
    size_R = np.nan_to_num(np.abs(check_rows(ids_R, advantages_R, rows)[1]), nan=-1.0)
    size_R[kept] = np.inf
    return np.sort(np.argsort(-size_R, kind="stable")[:rows])


def weighted_resample(
    weights_J: ArrayLike, size: int, *, draws: int = 8, rng: np.random.Generator
) -> IntArray:
    """Several draws by weight, each without replacement: Shuffle-R1's batch shuffle (arXiv
    2508.05612).

    A pair's weight is the sum of its two |advantages|. If a draw takes more entries than have
    positive weights, entries of weight 0 are added, all equally likely; the released code fails in
    this case.

    Args:
        weights_J: Non-negative weights, shape (J,).
        size: Entries drawn in all, shared evenly over the draws; at most J a draw.
        draws: Number of draws, 8 in the released code.
        rng: Draws one array of numbers.

    Returns:
        Indices of the entries drawn, ascending, each 0 to `draws` times, shape (size,).

    >>> weighted_resample([3.0, 0.0, 1.0, 0.0], 4, draws=2, rng=np.random.default_rng(0))
    array([0, 0, 2, 2])
    """
    weights = check_array("weights_J", weights_J, "one non-negative finite weight per pair")
    fits = weights.ndim == 1 and weights.size and np.isfinite(weights).all()
    if not fits or (weights < 0).any():
        raise InputError("weights_J", "give one non-negative finite weight per pair.", weights_J)
    check_integer("draws", draws, 1, max(_MOST_DRAWN // weights.size, 1))
    check_rng(rng)
    check_integer("size", size, 1, draws * weights.size)
    # A weight of 0 is so far below the others that noise cannot reorder them.
    positive = weights > 0
    smallest = weights[positive].min() if positive.any() else 1.0
    logs_J = np.log(np.where(positive, weights, smallest)) - 1000.0 * (positive.any() & ~positive)
    # the largest keys: a draw without replacement
    keys_DJ = logs_J + rng.gumbel(size=(draws, weights.size))
    order_DJ = np.argsort(-keys_DJ, axis=1, kind="stable")
    sizes_D = size // draws + (np.arange(draws) < size % draws)
    return np.sort(order_DJ[np.arange(weights.size) < sizes_D[:, None]])


def resample_on_correct(
    ids_R: Sequence[Hashable],
    rewards_R: ArrayLike,
    rows: int,
    penalties_R: ArrayLike | None = None,
    *,
    success_R: ArrayLike | None = None,
    min_zero: int = 2,
    min_positive: int = 2,
) -> IntArray:
    """Keeps each group's share of successes, those with the lowest penalty first (GRPO-RoC, arXiv
    2508.20722).

    A group that keeps m of its n rows keeps `round(m |positive| / n)` rows with success above 0,
    and other rows for the rest, the first ones. The released code rounds both kinds, keeps whole
    groups if both are too small, and drops groups of fewer than m rows and of equal rewards.

    Args:
        ids_R, rewards_R, rows: As in all functions of this module.
        penalties_R: Penalties, at least 0, shape (R,); NaN is the worst, and None is 0 for all.
        success_R: Success of each rollout in [0, 1]; None if the rewards are the successes.
        min_zero, min_positive: Fewest rows of each kind, as far as the group has them.

    >>> resample_on_correct(["a"] * 8, [1, 0, 1, 1, 0, 1, 0, 0], 4, [0.5, 0, 0, 0.2, 0, 1, 0, 0])
    array([1, 2, 3, 4])
    """
    check_integer("min_zero", min_zero, 0)
    check_integer("min_positive", min_positive, 0)
    group_R, rewards = check_rows(ids_R, rewards_R, rows)
    given = np.zeros(len(rewards)) if penalties_R is None else penalties_R
    penalties = as_rewards(given, len(rewards), "penalties_R")
    if (penalties < 0).any():
        raise InputError(
            "penalties_R",
            "give finite penalties of at least 0; a lower one is better.",
            penalties_R,
        )
    penalties = np.where(np.isnan(penalties), np.finfo(np.float64).max, penalties)
    scored, rest = _scored_first(rewards, rows)
    success = rewards if success_R is None else check_rows(ids_R, success_R, rows)[1]
    group_K, positive_K, penalty_K = group_R[scored], success[scored] > 0, penalties[scored]
    size_G, has_G = (
        np.bincount(group_K, each_K, group_R.max() + 1).astype(np.int64)
        for each_K in (np.ones(len(scored)), positive_K)
    )
    m_G = _share_rows(size_G, rows - len(rest))
    most_zero_G = np.minimum(min_zero, np.minimum(size_G - has_G, m_G))
    most_positive_G = np.minimum(min_positive, np.minimum(has_G, m_G))
    won_G = np.rint(has_G * m_G / np.maximum(size_G, 1)).astype(np.int64)
    won_G = np.where(m_G - won_G <= most_zero_G, m_G - most_zero_G, won_G)
    won_G = np.where(won_G <= most_positive_G, most_positive_G, won_G)

    kind_K = 2 * group_K + positive_K
    keep_by_kind = np.stack([m_G - won_G, won_G], axis=1).ravel()
    best_first = np.lexsort((np.where(positive_K, penalty_K, 0.0), kind_K))
    kept = _first_of_groups(best_first, kind_K, keep_by_kind)
    return np.sort(np.r_[scored[kept], rest])
