"""Which of the rollouts already generated to train on: pure functions from a step's rows to the rows kept."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.estimators import as_rewards
from budgetalloc.ids import check_ids, factorize
from budgetalloc.posterior import FloatArray


def mixed_first(ids_R: Sequence[Hashable], rewards_R: ArrayLike, rows: int) -> IntArray:
    """Rows of groups with unequal rewards, in the order of generation; only then the rest (DAPO, arXiv 2503.14476).

    DAPO drops groups of equal rewards. A trainer wants a batch of fixed size: where there are too few mixed rows the
    others fill it up, and under a group baseline they get advantage 0.

    Args:
        ids_R: The prompt of each rollout, shape (R,).
        rewards_R: Rewards, shape (R,); NaN is no reward.
        rows: How many to keep, 1 to R.

    Returns:
        Indices of the rows kept, ascending, shape (rows,).

    >>> mixed_first(["a", "a", "b", "b", "c", "c"], [1, 1, 0, 1, 0, 0], rows=4)
    array([0, 1, 2, 3])
    >>> mixed_first(["a", "a", "b", "b", "c", "c"], [1, 1, 0, 1, 0, 0], rows=2)
    array([2, 3])
    """
    group_R, rewards = _groups(ids_R, rewards_R, rows)
    low = np.full(group_R.max() + 1, np.inf)
    high = -low
    scored_R = ~np.isnan(rewards)
    np.minimum.at(low, group_R[scored_R], rewards[scored_R])
    np.maximum.at(high, group_R[scored_R], rewards[scored_R])
    equal_R = (low >= high)[group_R]
    return np.sort(np.argsort(equal_R, kind="stable")[:rows])


def balanced(ids_R: Sequence[Hashable], rewards_R: ArrayLike, rows: int) -> IntArray:
    """Equally many rows of every prompt, half of them successes where there are enough (Reinforce-Ada, 2510.04996).

    A success is a reward above 1/2. Of equal rows the first generated are kept. Where a prompt has too few rows, the
    others give theirs.

    Args and returns as `mixed_first`.

    >>> balanced(["a"] * 6 + ["b"] * 2, [0, 0, 0, 0, 1, 0, 1, 1], rows=4)
    array([0, 4, 6, 7])
    """
    group_R, rewards = _groups(ids_R, rewards_R, rows)
    # The k-th success and the k-th failure of each prompt come k-th, so that a prefix of any length is balanced.
    kind_R = group_R * 2 + (rewards > 0.5)
    turn_R = _turn(kind_R)
    within = np.lexsort((np.arange(len(group_R)), turn_R, group_R))
    place_R = np.empty(len(group_R), dtype=np.int64)
    place_R[within] = _turn(group_R[within])
    return np.sort(np.lexsort((np.arange(len(group_R)), place_R))[:rows])


def _turn(labels_R: IntArray) -> IntArray:
    """For each row, how many rows before it have the same label."""
    order = np.argsort(labels_R, kind="stable")
    ordered = labels_R[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    turn_R = np.empty(len(labels_R), dtype=np.int64)
    turn_R[order] = np.arange(len(labels_R)) - np.repeat(starts, np.diff(np.r_[starts, len(labels_R)]))
    return turn_R


def _groups(ids_R: Sequence[Hashable], rewards_R: ArrayLike, rows: int) -> tuple[IntArray, FloatArray]:
    ids = check_ids(ids_R, "ids_R")
    rewards = as_rewards(rewards_R, len(ids))
    if not 1 <= rows <= len(ids):
        raise InputError(f"rows={rows!r}: {len(ids)} rollouts are there to keep from. Use 1 to {len(ids)}.")
    _, group_R = factorize(ids)
    return group_R, rewards
