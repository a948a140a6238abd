"""Resample on correct: failures in order of generation, successes in order of penalty."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_integer, check_rng
from budgetalloc.methods.downselect.groups import (
    check_rows,
    first_of_groups,
    scored_first,
    share_rows,
)

__all__ = ["resample_on_correct"]

_SMALLEST = 0.01  # smaller penalties are raised to this value: weights are finite


def resample_on_correct(
    ids_R: Sequence[Hashable],
    rewards_R: ArrayLike,
    rows: int,
    penalties_R: ArrayLike | None = None,
    *,
    success_R: ArrayLike | None = None,
    min_zero: int = 2,
    min_positive: int = 2,
    rng: np.random.Generator | None = None,
) -> IntArray:
    """Keeps each group's share of successes, those with the lowest penalty first (GRPO-RoC, arXiv
    2508.20722).

    A group that keeps m of its n rows keeps `round(m |positive| / n)` rows with success above 0,
    and other rows for the rest. It keeps at least `min_zero` and `min_positive` of each kind, or
    all that it has. The released code takes the first failures and the successes with the lowest
    penalty. The paper is quoted as drawing failures uniformly and successes with chances inverse to
    their penalty (we did not read its text): pass `rng` for that.

    m is n `rows` / R, rounded by largest remainder. The released code rounds both kinds, keeps
    whole groups if both are too small, and drops groups of fewer than m rows and of equal rewards.
    Rows without a reward (NaN) come last.

    Args:
        ids_R: The prompt of each rollout, shape (R,).
        rewards_R: Rewards, shape (R,); NaN is no reward.
        rows: Rows to keep, 1 to R.
        penalties_R: Penalties, at least 0, shape (R,); NaN is the worst, and None is 0 for all. In
            the paper, the share of tool calls with an error plus a penalty for the format.
        success_R: Success of each rollout in [0, 1], shape (R,); None if the rewards are the
            successes.
        min_zero, min_positive: Fewest rows of each kind, as far as the group has them.
        rng: Source of the draws; None is the released rule. Penalties below 0.01 (our choice) count
            as 0.01.

    Returns:
        Indices of the rows kept, ascending, shape (rows,).

    >>> resample_on_correct(["a"] * 8, [1, 0, 1, 1, 0, 1, 0, 0], 4, [0.5, 0, 0, 0.2, 0, 1, 0, 0])
    array([1, 2, 3, 4])
    """
    check_integer("min_zero", min_zero, 0)
    check_integer("min_positive", min_positive, 0)
    if rng is not None:
        check_rng(rng)
    group_R, rewards = check_rows(ids_R, rewards_R, rows)
    penalties = _penalties(penalties_R, len(rewards))
    scored, rest = scored_first(rewards, rows)
    success = rewards if success_R is None else check_rows(ids_R, success_R, rows)[1]
    group_K, positive_K, penalty_K = group_R[scored], success[scored] > 0, penalties[scored]
    groups = group_R.max() + 1
    size_G = np.bincount(group_K, minlength=groups)
    has_G = np.bincount(group_K, weights=positive_K, minlength=groups).astype(np.int64)
    m_G = share_rows(size_G, rows - len(rest))
    positive_G = _positives(size_G, has_G, m_G, min_zero, min_positive)

    key_K = np.where(positive_K, penalty_K, 0.0)
    if rng is not None:  # the smallest of -log(weight) - Gumbel: a draw without replacement
        key_K = np.log(np.maximum(key_K, _SMALLEST)) - rng.gumbel(size=len(key_K))
    kind_K = 2 * group_K + positive_K
    keep_by_kind = np.stack([m_G - positive_G, positive_G], axis=1).ravel()
    kept = first_of_groups(np.lexsort((key_K, kind_K)), kind_K, keep_by_kind)
    return np.sort(np.r_[scored[kept], rest])


def _positives(
    size_G: IntArray, has_G: IntArray, m_G: IntArray, min_zero: int, min_positive: int
) -> IntArray:
    """The number of successes that each group keeps: of `has_G`, among `m_G` rows."""
    most_zero_G = np.minimum(min_zero, np.minimum(size_G - has_G, m_G))
    most_positive_G = np.minimum(min_positive, np.minimum(has_G, m_G))
    positive_G = np.rint(has_G * m_G / np.maximum(size_G, 1)).astype(np.int64)
    positive_G = np.where(m_G - positive_G <= most_zero_G, m_G - most_zero_G, positive_G)
    return np.where(positive_G <= most_positive_G, most_positive_G, positive_G)


def _penalties(penalties_R: ArrayLike | None, rows: int) -> FloatArray:
    if penalties_R is None:
        return np.zeros(rows)
    penalties = check_array("penalties_R", penalties_R, "one penalty a rollout")
    if penalties.shape != (rows,):
        raise InputError(
            f"penalties_R has shape {penalties.shape} for {rows} rollouts: give one per rollout."
        )
    bad = (penalties < 0) | np.isinf(penalties)
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(
            f"penalties_R[{at}] = {penalties[at]:g}: give a finite penalty of at least 0; a lower "
            "one is better."
        )
    return np.where(np.isnan(penalties), np.finfo(np.float64).max, penalties)
