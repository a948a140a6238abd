"""Group-relative advantages for groups of any size."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.expected_reward import GROUP, bernoulli_variance
from budgetalloc.beliefs.ids import check_ids, factorize
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import as_rewards, check_rewards
from budgetalloc.errors import InputError, check_array, check_choice, keywords, short_repr

Baseline = Literal["group", "loo", "batch", "posterior", "policy"]
Scale = Literal["group", "maxrl", "batch", "rms", "whiten", "whiten_tokens", "none"]
Weight = Literal["rollout", "prompt"]
EPS = 1e-4  # TRL's guard against a division by zero, so that equal groups give TRL's numbers


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
    checked = check_rewards if within else as_rewards
    rewards = checked(rewards_R, len(ids))
    check_choice("weight", weight, get_args(Weight))
    check_maxrl(named, scale)
    _, group_R = factorize(ids)
    scored_R = ~np.isnan(rewards)
    known = np.where(scored_R, rewards, 0.0)
    n_R = _group_sum(scored_R.astype(np.float64), group_R)  # scored rows of each row's group
    sum_R = _group_sum(known, group_R)
    others_R = np.maximum(n_R - 1, 1)

    if named == "group":
        base_R = sum_R / np.maximum(n_R, 1)
    elif named == "loo":
        base_R = np.where(n_R > 1, (sum_R - known) / others_R, known)
    elif named == "posterior":
        base_R = posterior_mean(rewards, group_R, belief_R, _rounds(round_R, len(ids)))
    elif named == "batch":
        base_R = np.full(len(ids), known.sum() / max(scored_R.sum(), 1))
    else:
        base_R = _given(baseline, len(ids))
    advantages = np.where(scored_R, rewards - base_R, 0.0)

    if scale in ("whiten", "whiten_tokens"):
        counted_R = scored_R * (_tokens(lengths_R, len(ids)) if scale == "whiten_tokens" else 1.0)
        advantages = np.where(scored_R, whitened(advantages, counted_R), 0.0)
    elif scale == "batch" and scored_R.sum() > 1:
        advantages = advantages / (np.std(rewards[scored_R], ddof=1) + EPS)
    elif scale == "rms" and scored_R.any():
        advantages = advantages / (np.sqrt(np.mean(advantages[scored_R] ** 2)) + EPS)
    elif scale == "maxrl":
        mean_R = base_R if named == "group" else maxrl_unit(base_R)
        advantages = np.divide(advantages, mean_R, np.zeros(len(ids)), where=mean_R > 0)
    elif scale == "group" and named == "posterior":
        advantages = advantages / (np.sqrt(bernoulli_variance(base_R)) + EPS)
    elif scale == "group":
        deviation_R = np.where(scored_R, rewards - sum_R / np.maximum(n_R, 1), 0.0)
        deviation_R = np.sqrt(_group_sum(deviation_R**2, group_R) / others_R)
        if named not in ("group", "loo") and not deviation_R[scored_R].all():
            raise InputError(
                "scale='group' has no deviation for a group of one, nor of equal rewards: use "
                "another, such as scale='batch'.",
                argument="scale",
            )
        advantages = advantages / (deviation_R + EPS)
    if weight == "prompt" and scored_R.any():
        prompts = np.unique(group_R[scored_R]).size
        advantages = advantages * (len(ids) / prompts / np.maximum(n_R, 1))
    return advantages


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


def posterior_mean(
    success_R: FloatArray,
    group_R: NDArray[np.int64],
    belief_R: Beta | None,
    round_R: NDArray[np.int64] | None = None,
) -> FloatArray:
    """The posterior mean of each row's prompt after the other rows of its group, except those of
    later rounds.

    NaN rows are no evidence. Without `round_R`, all rows are of one round.

    >>> belief_R, group_R = Beta([1, 1, 1], [1, 1, 1]), np.array([0, 0, 0])
    >>> posterior_mean(np.array([0.0, 0.0, 1.0]), group_R, belief_R).round(2)
    array([0.5 , 0.5 , 0.25])
    >>> posterior_mean(np.array([0.0, 0.0, 1.0]), group_R, belief_R, np.array([0, 0, 1])).round(2)
    array([0.33, 0.33, 0.25])
    """
    if not isinstance(belief_R, Beta) or len(belief_R) != len(success_R):
        given = f"{len(belief_R)} entries" if isinstance(belief_R, Beta) else short_repr(belief_R)
        raise InputError(
            f"belief_R={given}: baseline='posterior' needs the belief before the step about the "
            f"prompt of each of the {len(success_R)} rows: belief_R=policy.belief(ids_R).",
            argument="belief_R",
        )
    scored_R = ~np.isnan(success_R)
    known_R = np.where(scored_R, success_R, 0.0)
    rows = np.zeros(len(group_R), dtype=np.int64) if round_R is None else round_R
    others_R = sum_until(scored_R.astype(np.float64), group_R, rows) - scored_R
    evidence_R = belief_R.mass + others_R
    return np.asarray((belief_R.alpha_P + sum_until(known_R, group_R, rows) - known_R) / evidence_R)


def _group_sum(x_R: FloatArray, group_R: NDArray[np.int64]) -> FloatArray:
    """For each row, the sum over its group."""
    return np.asarray(np.bincount(group_R, weights=x_R)[group_R]) if len(x_R) else x_R


def sum_until(
    x_R: FloatArray, group_R: NDArray[np.int64], round_R: NDArray[np.int64]
) -> FloatArray:
    """For each row, the sum over its group's rows of the same and of earlier rounds."""
    if not len(x_R):
        return x_R
    rounds = int(round_R.max()) + 1
    sums_GK = np.bincount(
        group_R * rounds + round_R, weights=x_R, minlength=(group_R.max() + 1) * rounds
    )
    return np.asarray(sums_GK.reshape(-1, rounds).cumsum(axis=1)[group_R, round_R])


def _rounds(round_R: ArrayLike | None, rows: int) -> NDArray[np.int64] | None:
    if round_R is None:
        return None
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
