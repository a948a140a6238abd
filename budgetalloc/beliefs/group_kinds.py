"""The kind of each group of a step: mixed, all fail, all pass, tied, or a single rollout
(docs/glossary.md)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.rewards import EQUAL, extremes, unequal

__all__ = [
    "FAILED",
    "KINDS",
    "MIXED",
    "PASSED",
    "SINGLE",
    "TIED",
    "WITHOUT_GRADIENT",
    "group_kinds",
    "rollouts_by_kind",
]

KINDS = MIXED, FAILED, PASSED, TIED, SINGLE = ("mixed", "all_fail", "all_pass", "tied", "single")
"""In this order: unequal rewards; equal rewards with success 0, success 1 or success in between;
one rollout."""
WITHOUT_GRADIENT = FAILED, PASSED, TIED
"""The kinds of groups whose advantages are all 0 under a group baseline."""


def group_kinds(
    rewards_R: ArrayLike, success_R: ArrayLike, group_R: NDArray[np.int64], groups: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The kind of each group, and its number of rollouts with a reward. Rollouts without a reward
    are ignored.

    Args:
        rewards_R: Rewards in any units, NaN for none, shape (R,). They decide whether a group is
            mixed.
        success_R: Success in [0, 1], NaN for none, shape (R,). It decides between all fail, all
            pass and tied.
        group_R: The group of each rollout, from 0 to groups - 1, shape (R,).
        groups: Number of groups.

    Returns:
        The index in `KINDS` (-1 without any reward), and the rollouts with a reward; shape
            (groups,) each.

    >>> rewards_R, success_R = np.array([0.2, 0.0, 0.2, 0.2, 1.0, np.nan]), np.array([0.0, 0.0, 0.0, 0.0, 1.0, np.nan])
    >>> kind_G, rollouts_G = group_kinds(rewards_R, success_R, np.array([0, 0, 1, 1, 2, 2]), 3)
    >>> [KINDS[kind] for kind in kind_G], rollouts_G
    (['mixed', 'all_fail', 'single'], array([2, 2, 1]))
    """
    rewards, success = (
        np.asarray(rewards_R, dtype=np.float64),
        np.asarray(success_R, dtype=np.float64),
    )
    scored_R = ~np.isnan(rewards) & ~np.isnan(success)
    group_R = np.asarray(group_R)[scored_R]
    rollouts_G = np.bincount(group_R, minlength=groups)
    worst_G, best_G = extremes(success[scored_R], group_R, groups)
    conditions = [
        rollouts_G == 0,
        rollouts_G == 1,
        unequal(*extremes(rewards[scored_R], group_R, groups)),
    ]
    conditions += [best_G <= EQUAL, worst_G >= 1 - EQUAL]
    return np.select(conditions, [-1, 4, 0, 1, 2], 3), rollouts_G


def rollouts_by_kind(
    rewards_R: ArrayLike, success_R: ArrayLike, group_R: NDArray[np.int64], groups: int
) -> dict[str, int]:
    """The number of rollouts with a reward in groups of each kind. Arguments as in `group_kinds`.

    >>> rollouts_by_kind([0.0, 1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0, 0.0], np.array([0, 0, 1, 1, 2]), 3)
    {'mixed': 2, 'all_fail': 0, 'all_pass': 2, 'tied': 0, 'single': 1}
    """
    kind_G, rollouts_G = group_kinds(rewards_R, success_R, group_R, groups)
    return {kind: int(rollouts_G[kind_G == at].sum()) for at, kind in enumerate(KINDS)}
