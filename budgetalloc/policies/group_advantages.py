"""Group-relative advantages for groups of any size."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.expected_reward import EPS, GROUP, bernoulli_variance, posterior_mean
from budgetalloc.beliefs.ids import check_ids, factorize
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import (
    BoolArray,
    as_rewards,
    check_rewards,
    mixed_groups,
    some_unequal,
)
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_choice, keywords, short_repr
from budgetalloc.policies.rollouts import Rollouts

Baseline = Literal["group", "loo", "batch", "posterior", "policy"]
Scale = Literal["group", "maxrl", "batch", "rms", "whiten", "whiten_tokens", "none"]
Weight = Literal["rollout", "prompt"]


@keywords
def group_advantages(
    rewards_R: ArrayLike,
    ids_R: Iterable[Any],
    baseline: Baseline | ArrayLike = "group",
    scale: Scale = "group",
    weight: Weight = "rollout",
    *,
    belief_R: Beta | None = None,
    lengths_R: ArrayLike | None = None,
    round_R: ArrayLike | None = None,
) -> FloatArray:
    """Reward minus baseline, scaled and weighted, one per rollout; the rows of a group need not be
    adjacent.

    A rollout whose reward is NaN or None is left out of all statistics and gets advantage 0.

    Args:
        rewards_R: Rewards, shape (R,).
        ids_R: The prompt of each rollout, shape (R,).
        baseline:
            - "group", the mean of the group (GRPO, arXiv 2402.03300); a group of one gets 0.
            - "loo", the mean of the others in the group (RLOO, 2402.14740); a group of one gets 0.
            - "batch", the mean of all rewards (REINFORCE++, 2501.03262); groups of one are fine.
            - "posterior", `(a + sum of the other rewards) / (a + b + n - 1)` with Beta(a, b) the
              belief before this step. It does not depend on the rollout's own reward, hence it is
              unbiased, also for groups of one.
            - "policy", a rule of the policy's own, for trainers. Here pass its result,
              `step.expected_success(...)`.
            - An array, shape (R,): the baseline of each rollout.
        scale:
            - "none".
            - "group", divided by the standard deviation of the group. Under "posterior" this is the
              Bernoulli deviation sqrt(m(1-m)) of the baseline m, at least that of m = 0.05, which
              does not depend on the rollout's own reward either.
            - "maxrl", divided by the mean reward of the group, for rewards in [0, 1] (MaxRL,
              arXiv 2602.02710): (r - m) / m, whose expected gradient in groups of n is that of p
              times (1 - (1-p)^(n-1)) / p, so that successes of hard prompts count more. Under
              "posterior", divided by m / (1 - (1-m)^8). For "group" and "posterior" only.
            - "batch", divided by the standard deviation of all rewards, as TRL's
              `scale_rewards="batch"`.
            - "rms", divided by the root mean square of all advantages.
            - "whiten", minus the mean of all advantages, then divided by their standard deviation
              (SPO, 2509.13232; REINFORCE++).
            - "whiten_tokens", the same with every rollout counted once for each of its L tokens
              (SPO++, 2608.24870, eq. 5): the mean is sum L A / sum L, the variance sum L (A -
              mean)^2 / (sum L - 1). Use it if the loss averages over tokens.
        weight: "rollout", every rollout has the same weight. "prompt", every prompt has: rows are
            multiplied by mean count / count. With "posterior" and no scale, the expected gradient
            then does not depend on the counts; with "loo", it does not among counts of at least 2.
            This holds for a loss that averages over rollouts. Under a mean over tokens (TRL's
            default, "dapo"), a rollout's weight is also proportional to its length.
        belief_R: For "posterior": the belief about each row's prompt before this step,
            `policy.belief(ids_R)`.
        lengths_R: For "whiten_tokens": the tokens of each rollout, at least 0, shape (R,).
        round_R: For "posterior": the round of each rollout, integers from 0, shape (R,), if a
            policy decided in rounds. Whether a prompt gets more rollouts then depends on its
            outcomes, and a baseline that later rounds enter is biased, as "group", "loo" and
            "batch" are in any case.

    Returns:
        Advantages, shape (R,).

    Raises:
        InputError: lengths differ, an option is unknown or does not fit another, "posterior" has no
            belief, "posterior" or "maxrl" rewards outside [0, 1], or "whiten_tokens" no tokens.

    >>> group_advantages([1, 0, 0, 0, 1], ["a", "a", "a", "a", "b"], scale="none")
    array([ 0.75, -0.25, -0.25, -0.25,  0.  ])
    >>> group_advantages([1, 0, 0, 0], ["a", "a", "a", "a"], scale="maxrl")  # 0.75 / 0.25
    array([ 3., -1., -1., -1.])
    >>> belief_R = Beta([3, 3, 1], [3, 3, 1])  # before this step, both succeeded half the time
    >>> group_advantages([0, 0, 1], ["a", "a", "b"], "posterior", "none", belief_R=belief_R)
    array([-0.42857143, -0.42857143,  0.5       ])
    >>> group_advantages([1, 0, 0, 0], ["a", "b", "c", "d"], "batch", "whiten").round(2)
    array([ 1.5, -0.5, -0.5, -0.5])
    """
    ids = check_ids(ids_R, "ids_R")
    named = baseline if isinstance(baseline, str) else ""
    check_choice("scale", scale, get_args(Scale))
    within = named == "posterior" or scale == "maxrl"
    rewards = (check_rewards if within else as_rewards)(rewards_R, len(ids))
    check_choice("weight", weight, get_args(Weight))
    check_maxrl(named, scale)
    group_R = factorize(ids)[1]
    if named in ("group", "loo", "batch"):
        base_R = mean_baseline(rewards, group_R, named)
    elif named == "posterior":
        rounds = _rounds(round_R, len(ids))
        base_R = posterior_mean(rewards, group_R, _checked(belief_R, len(ids)), rounds)
    else:
        base_R = _given(baseline, len(ids))
    tokens = _tokens(lengths_R, len(ids)) if scale == "whiten_tokens" else None
    return relative_advantages(rewards, group_R, named, base_R, scale, weight, tokens)


def mean_baseline(rewards_R: FloatArray, group_R: IntArray, baseline: str) -> FloatArray:
    """The baseline "group", "loo" or "batch" of each rollout."""
    scored_R = ~np.isnan(rewards_R)
    known_R = np.where(scored_R, rewards_R, 0.0)
    if baseline == "batch":
        return np.full(len(rewards_R), known_R.sum() / max(int(scored_R.sum()), 1))
    n_R, sum_R = (np.bincount(group_R, x_R)[group_R] for x_R in (scored_R, known_R))
    if baseline == "group":
        return np.asarray(sum_R / np.maximum(n_R, 1))
    return np.where(n_R > 1, (sum_R - known_R) / np.maximum(n_R - 1, 1), known_R)


def relative_advantages(
    rewards_R: FloatArray,
    group_R: IntArray,
    baseline: str,
    base_R: FloatArray,
    scale: Scale,
    weight: Weight,
    lengths_R: ArrayLike | None,
) -> FloatArray:
    """As `group_advantages`, for arguments that have been checked and a baseline that is known.
    `baseline` is its name, or "" for none."""
    scored_R = ~np.isnan(rewards_R)
    advantages_R = np.where(scored_R, rewards_R - base_R, 0.0)
    if scale == "maxrl":
        mean_R = base_R if baseline == "group" else maxrl_unit(base_R)
        advantages_R = np.divide(advantages_R, mean_R, np.zeros(len(mean_R)), where=mean_R > 0)
    elif scale == "group" and baseline == "posterior":
        advantages_R = advantages_R / (np.sqrt(bernoulli_variance(base_R)) + EPS)
    elif scale == "group":
        away_R = np.where(scored_R, rewards_R - mean_baseline(rewards_R, group_R, "group"), 0.0)
        n_R, square_R = (np.bincount(group_R, x_R)[group_R] for x_R in (scored_R, away_R**2))
        deviation_R = np.sqrt(square_R / np.maximum(n_R - 1, 1))
        if baseline not in ("group", "loo") and not deviation_R[scored_R].all():
            raise InputError(
                "scale='group' has no deviation for a group of one, nor of equal rewards: use "
                "another, such as scale='batch'.",
                argument="scale",
            )
        advantages_R = advantages_R / (deviation_R + EPS)
    else:
        advantages_R = scaled_in_step(advantages_R, rewards_R, scale, lengths_R)
    return advantages_R * prompt_weights(scored_R, group_R) if weight == "prompt" else advantages_R


def in_groups(
    rollouts: Rollouts, baseline: Baseline, scale: Scale, weight: Weight
) -> tuple[FloatArray, FloatArray]:
    """The advantages of a step and the baseline of each rollout, under the baselines "group", "loo"
    and "batch", which need no beliefs; all advantages are 0 if all rewards are equal."""
    rewards_R, group_R, resolution = rollouts.rewards_R, rollouts.group_R, rollouts.resolution
    base_R = mean_baseline(rewards_R, group_R, baseline)
    if not some_unequal(rewards_R):
        return np.zeros(len(rollouts)), base_R
    about = rewards_R, group_R, baseline, base_R, "none" if scale == "maxrl" else scale, weight
    values_R = relative_advantages(*about, rollouts.lengths_R)
    if scale == "maxrl":
        # The mean success, in units of the reward. At least that of one success, so that other
        # parts of the reward count where all fail; 1 while success is not known.
        scored_R = ~np.isnan(rollouts.success_R)
        n_G = np.maximum(np.bincount(group_R, scored_R), 1)
        mean_G = np.bincount(group_R, np.nan_to_num(rollouts.success_R)) / n_G
        unit_R = abs(rollouts.jump) * np.maximum(mean_G, 1 / n_G)[group_R]
        values_R = values_R / np.where(scored_R & (unit_R > 0), unit_R, 1.0)
    if resolution and baseline != "batch":  # which does not compare within groups
        mixed_G = mixed_groups(rewards_R, group_R, len(rollouts.counts_G), resolution)
        values_R = np.where(mixed_G[group_R], values_R, 0.0)
    return values_R, base_R


def scaled_in_step(
    advantages_R: FloatArray, rewards_R: FloatArray, scale: Scale, lengths_R: ArrayLike | None
) -> FloatArray:
    """Advantages divided by one number of the whole step under the scales "batch" and "rms",
    whitened under "whiten" and "whiten_tokens", and unchanged under others."""
    scored_R = ~np.isnan(rewards_R)
    if scale in ("whiten", "whiten_tokens"):
        counted_R = scored_R * (1.0 if scale == "whiten" else np.asarray(lengths_R))
        return np.where(scored_R, whitened(advantages_R, counted_R), 0.0)
    if scale == "batch" and scored_R.sum() > 1:
        return np.asarray(advantages_R / (np.std(rewards_R[scored_R], ddof=1) + EPS))
    if scale == "rms" and scored_R.any():
        return np.asarray(advantages_R / (np.sqrt(np.mean(advantages_R[scored_R] ** 2)) + EPS))
    return advantages_R


def prompt_weights(counted_R: BoolArray, group_R: IntArray) -> FloatArray:
    """The weight of each rollout under "prompt", mean count / count of its group, where only some
    rows are counted."""
    n_G = np.bincount(group_R, counted_R)
    prompts = max(int(np.count_nonzero(n_G)), 1)
    return np.asarray(len(group_R) / prompts / np.maximum(n_G, 1)[group_R])


def maxrl_unit(mean_R: FloatArray) -> FloatArray:
    """m / (1 - (1-m)^8) of each mean success m in [0, 1]: by what MaxRL of order 8 divides, from
    1/8 to 1.

    >>> maxrl_unit(np.array([0.0, 0.5, 1.0])).round(3)
    array([0.125, 0.502, 1.   ])
    """
    m_R = np.clip(mean_R, 1e-9, 1.0)
    return np.asarray(m_R / (1 - (1 - m_R) ** GROUP))


def check_maxrl(baseline: str | None, scale: str | None) -> None:
    """Raises `InputError` for a baseline that the scale "maxrl" is not defined for."""
    if scale == "maxrl" and baseline not in ("group", "posterior"):
        raise InputError(
            f"scale='maxrl' with baseline={baseline or 'an array'!r}: use 'group' or 'posterior'.",
            argument="scale",
        )


def whitened(advantages_R: FloatArray, counted_R: FloatArray) -> FloatArray:
    """Advantages minus their mean, divided by their standard deviation; row r counts `counted_R[r]`
    times, at least 0.

    >>> # 0.2, -0.2 and 0.1 over sqrt(0.16 / 3)
    >>> whitened(np.array([0.5, 0.1, 0.4]), np.array([2.0, 2.0, 0.0])).round(2)
    array([ 0.87, -0.87,  0.43])
    """
    total = counted_R.sum()
    if not total:
        return advantages_R
    centred_R = advantages_R - counted_R @ advantages_R / total
    variance = counted_R @ centred_R**2 / (total - 1) if total > 1 else 0.0
    return np.asarray(centred_R / (np.sqrt(variance) + EPS))


def _checked(belief_R: Beta | None, rows: int) -> Beta:
    if not isinstance(belief_R, Beta) or len(belief_R) != rows:
        given = f"{len(belief_R)} entries" if isinstance(belief_R, Beta) else short_repr(belief_R)
        raise InputError(
            f"belief_R={given}: baseline='posterior' needs the belief before the step about the "
            f"prompt of each of the {rows} rows: belief_R=policy.belief(ids_R).",
            argument="belief_R",
        )
    return belief_R


def _rounds(round_R: ArrayLike | None, rows: int) -> IntArray:
    if round_R is None:
        return np.zeros(rows, dtype=np.int64)
    what = "a round, an integer from 0,"
    rounds = _column("round_R", round_R, what, rows, lambda x: np.isin(x, np.arange(1 + rows)))
    return rounds.astype(np.int64)


def _tokens(lengths_R: ArrayLike | None, rows: int) -> FloatArray:
    if lengths_R is None:
        raise InputError(
            "scale='whiten_tokens'", "counts tokens: pass lengths_R, the tokens of each rollout."
        )
    what = "a number of tokens"
    return _column("lengths_R", lengths_R, what, rows, lambda x: np.isfinite(x) & (x >= 0))


def _given(baseline: object, rows: int) -> FloatArray:
    if isinstance(baseline, str):
        raise InputError(
            "baseline", f"use one of {get_args(Baseline)} or an array, one per rollout.", baseline
        )
    return _column("baseline", baseline, "a finite number", rows, np.isfinite)


def _column(
    name: str, given: Any, what: str, rows: int, fine: Callable[[FloatArray], Any]
) -> FloatArray:
    array = check_array(name, given, f"{what} for each rollout")
    if array.shape != (rows,) or not fine(array).all():
        raise InputError(name, f"give {what} for each of {rows} rollouts.", given)
    return array
