"""Rewards of sets of rollouts, shared by the rollouts in them."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import comb

from budgetalloc.beliefs.ids import check_ids, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_array, check_integer, keywords


@keywords
def polychromic_rewards(
    rewards_R: ArrayLike, kinds_R: Iterable[Any], ids_R: Iterable[Any], *, size: int = 4
) -> FloatArray:
    """Rewards of rollouts by the sets that they are in: a set scores its mean reward times the
    share of different kinds in it.

    A rollout gets the mean score of all sets of `size` rollouts of its prompt that contain it,
    exactly, not by drawing sets. Minus the mean over the group, which GRPO subtracts, this is the
    marginal advantage of the polychromic objective (arXiv 2509.25424): a failed rollout of a rare
    kind is reinforced if others in its sets succeed. A group of at most `size` rollouts is one set:
    all of them get the same reward, and nothing is learned.

    Return it from a reward function that takes `budgetalloc_group=`, with groups of `size + 1` or
    more (`min_group=`) and their mean as baseline. The paper's vine sampling, which begins sets at
    states inside a rollout, is left out: answers begin at the prompt.

    Args:
        rewards_R: The rewards of the rollouts, shape (R,).
        kinds_R: What counts as the same, such as the final answer of each rollout or its strategy,
            shape (R,).
        ids_R: The prompt of each rollout, shape (R,).
        size: Rollouts of a set, at least 2.

    Returns:
        Shape (R,), in the range of the rewards if that contains 0.

    Raises:
        InputError: arguments of unequal lengths, NaN rewards, or a `size` below 2.

    >>> rewards_R, answers_R = [1, 1, 0, 0], ["12", "12", "7", "9"]
    >>> polychromic_rewards(rewards_R, answers_R, ["a"] * 4, size=2).round(3)
    array([0.5  , 0.5  , 0.333, 0.333])
    """
    rewards = check_array("rewards_R", rewards_R, "one reward for each rollout")
    ids, kinds = check_ids(ids_R, "ids_R"), check_ids(kinds_R, "kinds_R")
    check_integer("size", size, 2)
    if rewards.ndim != 1 or not len(rewards) == len(ids) == len(kinds):
        raise InputError(
            f"rewards_R has shape {rewards.shape}, kinds_R {len(kinds)} and ids_R {len(ids)} "
            "entries: give one of each for every rollout.",
            argument="rewards_R",
        )
    if not np.isfinite(rewards).all():
        raise InputError("rewards_R", "give a number for each rollout.", rewards_R)
    shared_R, (_, group_R) = np.empty(len(rewards)), factorize(ids)
    for group in range(group_R.max(initial=-1) + 1):
        rows = np.flatnonzero(group_R == group)
        _, kind_N = factorize([kinds[row] for row in rows])
        shared_R[rows] = _mean_scores(rewards[rows], kind_N, min(size, len(rows)))
    return shared_R


def _mean_scores(rewards_N: FloatArray, kind_N: NDArray[np.int64], size: int) -> FloatArray:
    """The mean score of the sets that contain each rollout of a group, shape (N,)."""
    if size == 1:
        return rewards_N
    rollouts, of_kind_C = len(rewards_N), np.bincount(kind_N)

    def absent(known: int) -> FloatArray:
        """The chance that a kind is not among the rest of a set, of which `known` are others."""
        rest, drawn = rollouts - known, size - known
        return np.asarray(comb(rest - of_kind_C, drawn) / comb(rest, drawn))

    once_C, twice_C = absent(1), absent(2)
    own_N = rewards_N * ((1 - once_C).sum() + once_C[kind_N])
    # with another rollout of the set: the kinds of both, and of the rest
    kinds_NN = (1 - twice_C).sum() + twice_C[kind_N][:, None] + twice_C[kind_N]
    kinds_NN -= np.where(kind_N[:, None] == kind_N, twice_C[kind_N], 0.0)
    np.fill_diagonal(kinds_NN, 0.0)
    others_N = (size - 1) / (rollouts - 1) * kinds_NN @ rewards_N
    return np.asarray((own_N + others_N) / size**2)
