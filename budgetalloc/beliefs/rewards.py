"""Rewards of rollouts: checks, the map from a range to [0, 1], and which groups are mixed."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_array, is_number

EQUAL = 1e-6
"""Relative tolerance for equal rewards, because trainers pass float32. For rewards below 1 it is
absolute."""
WAIT = 10
"""Steps after which success is the total reward, if no function has given both 0 and 1."""
LARGEST_REWARD = 1e300
"""Larger rewards count as infinite, because their sums would overflow."""
BoolArray = NDArray[np.bool_]
logger = logging.getLogger(__name__)


def check_rewards(rewards_R: ArrayLike, rows: int, name: str = "rewards_R") -> FloatArray:
    """Rewards or successes in [0, 1] as floats, None as NaN. Rounding errors outside of the range
    are clipped.

    Raises:
        InputError: a wrong length, or a value outside [0, 1] by more than `EQUAL`.

    >>> check_rewards([np.float32(1) + np.float32(1.2e-7), None], 2)
    array([ 1., nan])
    """
    rewards = as_rewards(rewards_R, rows, name)
    outside = (rewards < -EQUAL) | (rewards > 1 + EQUAL)  # False for NaN
    if outside.any():
        at = int(np.argmax(outside))
        raise InputError(
            f"{name}[{at}] = {rewards[at]:.8g} lies outside [0, 1], the range that a Beta belief "
            "needs. Use (r - low) / (high - low), or pass the success of each rollout as success_R "
            "in addition to rewards of any size. In the TRL callback, pass reward_range=(low, "
            "high) or success=.",
            argument=name,
        )
    return np.clip(rewards, 0.0, 1.0)


def check_outcomes(
    rewards_R: ArrayLike, success_R: ArrayLike | None, rows: int
) -> tuple[FloatArray, FloatArray]:
    """The rewards and the successes of rollouts as floats, None as NaN.

    Without `success_R`, the rewards are the successes. A rollout without a reward has no success
    either, and an infinite reward counts as none.

    Raises:
        InputError: a wrong length, or a success outside [0, 1].

    >>> check_outcomes([0.2, 1.0, None], [0, 1, 1], 3)
    (array([0.2, 1. , nan]), array([ 0.,  1., nan]))
    """
    given_R = check_array("rewards_R", rewards_R, "one number, NaN or None for each rollout")
    if given_R.ndim == 1 and (np.abs(given_R) > LARGEST_REWARD).any():
        _warn_of_infinite()
        rewards_R = without_infinite(given_R)[0]
    if success_R is None:
        success = check_rewards(rewards_R, rows)
        return success, success
    rewards, success = as_rewards(rewards_R, rows), check_rewards(success_R, rows, "success_R")
    return rewards, np.where(np.isnan(rewards), np.nan, success)


def without_infinite(
    rewards_R: FloatArray, scores_RF: FloatArray | None = None, weights_F: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Total rewards and the rewards by function, NaN where they are infinite: such a rollout
    counts as one without a reward, unless the infinite reward has weight 0.

    >>> without_infinite(np.array([1.0, np.inf]), np.array([[1.0], [np.inf]]), np.ones(1))[0]
    array([ 1., nan])
    """
    infinite_R = np.abs(rewards_R) > LARGEST_REWARD
    scores_RF = np.zeros((len(rewards_R), 0)) if scores_RF is None else scores_RF
    infinite_RF = np.abs(scores_RF) > LARGEST_REWARD
    if weights_F is not None:
        infinite_R = infinite_R | infinite_RF[:, weights_F != 0].any(axis=1)
    lost_RF = infinite_RF | infinite_R[:, None]
    return np.where(infinite_R, np.nan, rewards_R), np.where(lost_RF, np.nan, scores_RF)


@lru_cache(maxsize=1)  # once a process
def _warn_of_infinite() -> None:
    logger.warning(
        "rewards_R has an infinite reward, which counts as no reward, here and later. Pass None "
        "where there is no reward."
    )


def as_rewards(rewards_R: ArrayLike, rows: int, name: str = "rewards_R") -> FloatArray:
    """Rewards as floats, None as NaN, of the given length. Raises `InputError` for anything
    else."""
    rewards = check_array(name, rewards_R, "one number, NaN or None for each rollout")
    if rewards.shape != (rows,):
        raise InputError(
            f"{name} has shape {rewards.shape} for {rows} ids: give one number per rollout.",
            argument=name,
        )
    if np.isinf(rewards).any():
        at = int(np.argmax(np.isinf(rewards)))
        raise InputError(
            f"{name}[{at}] = {rewards[at]:g}: give a finite number, or NaN or None for no reward.",
            argument=name,
        )
    return rewards


def check_range(reward_range: Any) -> tuple[float, float]:
    """The lowest and the highest reward as floats. Raises `InputError` unless they are two finite
    ascending numbers.

    >>> check_range([-3, 3])
    (-3.0, 3.0)
    """
    try:
        low, high = reward_range
    except (TypeError, ValueError):
        low, high = 0.0, -1.0
    if not (is_number(low) and is_number(high) and 0 < float(high) - float(low) < math.inf):
        raise InputError(
            "reward_range", "give the lowest and highest reward, as (0.0, 1.0).", reward_range
        )
    return float(low), float(high)


def check_success(success: Any) -> None:
    """Raises `InputError` unless this is None, a name, a place, a threshold or a function."""
    if success is None or isinstance(success, str) or callable(success) or is_number(success):
        return
    raise InputError(
        "success",
        "pass the name of a reward function, its place in the list (an int), a threshold on the "
        "total reward (a float), or a function from the rewards by name to success in [0, 1].",
        success,
    )


def to_unit(rewards_R: ArrayLike, reward_range: tuple[float, float]) -> FloatArray:
    """Rewards mapped linearly from the range (low, high) to [0, 1], shape (R,). NaN stays.

    Rounding errors of float32 sums just outside of the range are clipped.

    >>> to_unit([-1.0, 0.5, 2.0, 2.0000001, 5.0], (-1.0, 2.0))
    array([0. , 0.5, 1. , 1. , 2. ])
    """
    low, high = reward_range
    with np.errstate(over="ignore"):  # infinity is outside of the range, too
        unit_R = (np.asarray(rewards_R, dtype=np.float64) - low) / (high - low)
    edge_R = np.clip(unit_R, 0.0, 1.0)
    return np.where(np.abs(unit_R - edge_R) < EQUAL, edge_R, unit_R)


@dataclass(frozen=True, eq=False)
class RewardHistory:
    """What each reward function has returned so far.

    Args:
        in_01_F: Whether all its rewards lay in [0, 1].
        binary_F: Whether all its rewards were 0 or 1.
        gave_0_F, gave_1_F: Whether one of its rewards was 0, or 1.
        scored_F: Whether it has returned a reward.
        partial_F: Whether it returned None for a rollout that another function scored.
    """

    in_01_F: BoolArray
    binary_F: BoolArray
    gave_0_F: BoolArray
    gave_1_F: BoolArray
    scored_F: BoolArray
    partial_F: BoolArray

    @classmethod
    def none(cls, functions: int) -> "RewardHistory":
        """The state before the first reward."""
        return cls(*(np.full(functions, flag) for flag in (True, True, False, False, False, False)))

    def plus(self, scores_RF: FloatArray) -> "RewardHistory":
        """The state after these rewards, shape (R, F); NaN where a function returned None."""
        none_RF = np.isnan(scores_RF)
        zero_RF = np.abs(scores_RF) < EQUAL
        one_RF = np.abs(scores_RF - 1) < EQUAL
        inside_RF = (scores_RF > -EQUAL) & (scores_RF < 1 + EQUAL)
        return RewardHistory(
            self.in_01_F & (inside_RF | none_RF).all(axis=0),
            self.binary_F & (zero_RF | one_RF | none_RF).all(axis=0),
            self.gave_0_F | zero_RF.any(axis=0),
            self.gave_1_F | one_RF.any(axis=0),
            self.scored_F | ~none_RF.all(axis=0),
            self.partial_F | (none_RF & ~none_RF.all(axis=1, keepdims=True)).any(axis=0),
        )

    def success(self, weights: Sequence[float], waited: int) -> tuple[int, ...] | None:
        """The functions that are success if the user did not say, empty for the total reward; None
        while a function may still qualify.

        It is the function of the largest positive weight among those that have given both 0 and 1
        and nothing outside; of several with that weight, all that gave nothing else (or the first)
        must be 1. A function of at least that weight that has only failed so far is waited for, and
        so is any function in [0, 1] if none qualifies, for `WAIT` steps. Then success is the total
        reward.

        >>> def success(*rows, waited=0):
        ...     return RewardHistory.none(2).plus(np.array(rows)).success([1.0, 0.5], waited)
        >>> success([0.0, 1.0], [1.0, 1.0])  # the second has always given 1
        (0,)
        >>> success([0.0, 1.0], [0.0, 0.0])  # the first may succeed later
        >>> success([0.0, 1.0], [0.0, 0.0], waited=10), success([3.0, 1.0], waited=10)
        ((1,), ())
        """
        weight_F = np.array(weights, dtype=np.float64)
        open_F = self.in_01_F & self.scored_F & (weight_F > 0)
        both_F = open_F & self.gave_0_F & self.gave_1_F
        largest = float(weight_F[both_F].max()) if both_F.any() else 0.0
        failed_F = open_F & self.binary_F & ~self.gave_1_F & (weight_F >= largest)
        waits = failed_F.any() if both_F.any() else open_F.any() or not self.scored_F.any()
        if waits and waited < WAIT:
            return None
        top_F = both_F & (weight_F == largest)
        binary = np.flatnonzero(top_F & self.binary_F).tolist()
        return tuple(binary or np.flatnonzero(top_F).tolist()[:1])


def extremes(
    rewards_R: ArrayLike, group_R: NDArray[np.int64], groups: int
) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest reward of each group, shape (groups,); inf and -inf for a group without
    any reward. Rewards are NaN for none, and groups are numbered from 0.

    >>> extremes([0.0, 1.0, np.nan, 0.5], np.array([0, 0, 1, 2]), 3)
    (array([0. , inf, 0.5]), array([ 1. , -inf,  0.5]))
    """
    low_G, high_G = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.fmin.at(low_G, group_R, rewards_R)
    np.fmax.at(high_G, group_R, rewards_R)
    return low_G, high_G


def some_unequal(rewards_R: FloatArray) -> bool:
    """Whether any two of these rewards are unequal."""
    return bool(mixed_groups(rewards_R, np.zeros(len(rewards_R), dtype=np.int64), 1)[0])


def mixed_groups(
    rewards_R: ArrayLike, group_R: NDArray[np.int64], groups: int, resolution: float = 0.0
) -> NDArray[np.bool_]:
    """Which groups have rewards that differ by more than the resolution, shape (groups,); none
    without any reward. Arguments as in `extremes`.

    >>> mixed_groups([0.2, 0.2, 0.2, 1.0, np.nan], np.array([0, 0, 1, 1, 2]), 3)
    array([False,  True, False])
    """
    low_G, high_G = extremes(rewards_R, group_R, groups)
    high_G -= resolution
    largest_G = np.maximum(np.abs(low_G), np.abs(high_G))
    return np.asarray(high_G - low_G > EQUAL * np.maximum(1.0, largest_G))


def merge_near_ties(rewards_R: FloatArray, ids_R: Sequence[Id], resolution: float) -> FloatArray:
    """The rewards, with one value in each near tie, a group whose rewards differ by at most the
    resolution: its lowest. Rounding would part rewards that are close together.

    >>> merge_near_ties(np.array([1.0, 0.999, 1.001, 1.0, 1.1]), ["a", "a", "a", "b", "b"], 0.002)
    array([0.999, 0.999, 0.999, 1.   , 1.1  ])
    """
    if not resolution:
        return rewards_R
    ids_G, group_R = factorize(ids_R)
    mixed_G = mixed_groups(rewards_R, group_R, len(ids_G), resolution)
    low_G, _ = extremes(rewards_R, group_R, len(ids_G))
    return np.where(mixed_G[group_R] | np.isnan(rewards_R), rewards_R, low_G[group_R])


KINDS = MIXED, FAILED, PASSED, TIED, SINGLE = ("mixed", "all_fail", "all_pass", "tied", "single")
"""In this order: unequal rewards; equal rewards with success 0, success 1 or success in between;
one rollout."""
WITHOUT_GRADIENT = FAILED, PASSED, TIED
"""The kinds of groups whose advantages are all 0 under a group baseline."""


def group_kinds(
    rewards_R: ArrayLike,
    success_R: ArrayLike,
    group_R: NDArray[np.int64],
    groups: int,
    resolution: float = 0.0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The kind of each group, and its number of rollouts with a reward. Rollouts without a reward
    are ignored.

    Args:
        rewards_R: Rewards in any units, NaN for none, shape (R,). They decide whether a group is
            mixed.
        success_R: Success in [0, 1], NaN for none, shape (R,). It decides between all fail, all
            pass and tied.
        group_R, groups, resolution: As in `mixed_groups`.

    Returns:
        The index in `KINDS` (-1 without any reward), and the rollouts with a reward; shape
            (groups,) each.

    >>> rewards_R, success_R = np.array([0.2, 0.0, 0.2, 0.2, 1.0, np.nan]), np.array([0.0, 0.0, 0.0,
    ...     0.0, 1.0, np.nan])
    >>> kind_G, rollouts_G = group_kinds(rewards_R, success_R, np.array([0, 0, 1, 1, 2, 2]), 3)
    >>> [KINDS[kind] for kind in kind_G], rollouts_G
    (['mixed', 'all_fail', 'single'], array([2, 2, 1]))
    """
    rewards = np.asarray(rewards_R, dtype=np.float64)
    success = np.asarray(success_R, dtype=np.float64)
    scored_R = ~np.isnan(rewards) & ~np.isnan(success)
    group_R = np.asarray(group_R)[scored_R]
    rollouts_G = np.bincount(group_R, minlength=groups)
    worst_G, best_G = extremes(success[scored_R], group_R, groups)
    conditions = [
        rollouts_G == 0,
        rollouts_G == 1,
        mixed_groups(rewards[scored_R], group_R, groups, resolution),
    ]
    conditions += [best_G <= EQUAL, worst_G >= 1 - EQUAL]
    return np.select(conditions, [-1, 4, 0, 1, 2], 3), rollouts_G
