"""The mean absolute advantage of groups."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import extremes, unequal

__all__ = ["mean_advantage"]


def mean_advantage(rewards_R: ArrayLike, group_R: NDArray[np.int64], groups: int) -> FloatArray:
    """The mean absolute advantage of each group, in [0, 1], 0 if all rewards are equal, shape
    (groups,).

    Advantages are GRPO's (r - mean) / deviation, with the deviation over n, not n - 1. If rewards
    take two values, and a share m has the higher one, the result is 2 sqrt(m (1-m)).

    Args:
        rewards_R: Finite rewards on any scale, shape (R,).
        group_R: The group of each reward, from 0 to groups - 1, shape (R,).
        groups: Number of groups.

    >>> mean_advantage([0, 0, 0, 1, 0.2, 1.0, 0.5, 0.5], np.repeat([0, 1, 2], [4, 2, 2]), 3).round(4)
    array([0.866, 1.   , 0.   ])
    """
    rewards = np.asarray(rewards_R, dtype=np.float64)
    low_G, high_G = extremes(rewards, group_R, groups)
    n_G = np.maximum(np.bincount(group_R, minlength=groups), 1)
    high_R = rewards == high_G[group_R]
    share_G = np.bincount(group_R[high_R], minlength=groups) / n_G
    between_G = np.bincount(group_R[~high_R & (rewards != low_G[group_R])], minlength=groups) > 0
    away_R = rewards - (np.bincount(group_R, weights=rewards, minlength=groups) / n_G)[group_R]
    mean_G = np.bincount(group_R, weights=np.abs(away_R), minlength=groups) / n_G
    square_G = np.bincount(group_R, weights=away_R**2, minlength=groups) / n_G
    with np.errstate(invalid="ignore"):  # 0 / 0 if all are equal
        many_G = mean_G / np.sqrt(square_G)
    two_G = 2.0 * np.sqrt(share_G * (1.0 - share_G))  # exact where rewards are 0 and 1
    return np.where(unequal(low_G, high_G), np.where(between_G, many_G, two_G), 0.0)
