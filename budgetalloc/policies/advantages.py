"""The advantages of a step: weight x (reward - baseline) x one factor.

Each part of the rule answers one question:

- Belief: what will it score? The baseline is the reward that is expected of a rollout without its
  own reward (`rollouts.Expected`).
- Objective: how much does a success of a hard prompt count? The weight is 1 / sqrt(m (1-m)) at an
  expected success m, as in GRPO (scale="group"); (1 - (1-m)^8) / m, as in MaxRL ("maxrl"); or 1,
  which is the mean success.
- Choice: who was drawn? A prompt with more rollouts counts more, unless weight="prompt".

The factor keeps the size of advantages near GRPO's, whatever the rewards are.
"""

from dataclasses import dataclass

import numpy as np

from budgetalloc.beliefs.expected_reward import EPS, bernoulli_variance, chance_equal
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import some_unequal
from budgetalloc.errors import InputError
from budgetalloc.policies.group_advantages import (
    Baseline,
    Scale,
    Weight,
    check_maxrl,
    in_groups,
    maxrl_unit,
    prompt_weights,
    scaled_in_step,
)
from budgetalloc.policies.rollouts import Expected, Rollouts

LARGEST = 5.0
"""The largest advantage under scale "group": twice the largest of GRPO in groups of 8. 0/1 rewards
stay below it."""
# the largest ratio to GRPO's size; following GRPO at every step would make Adam's steps uneven
_APART = 1.3


@dataclass(frozen=True, eq=False)
class Advantages:
    """The advantages of a step."""

    values_R: FloatArray  # 0 for a rollout not to train on
    baseline_R: FloatArray  # in units of the rewards; NaN for a rollout not to train on


def batch_advantages(
    rollouts: Rollouts,
    baseline: Baseline,
    scale: Scale,
    weight: Weight = "rollout",
    sized_as: str = "none",
) -> Advantages:
    """The advantages of a step, in the units of `group_advantages`, with rewards on any scale; all
    0 if all rewards are equal.

    Under "posterior" and "policy" the expected success m becomes an expected reward, and m (1-m) a
    variance of rewards. Two things hold for "posterior", whatever the rewards did before:

    - From the step on in which the rewards of all prompts change, the mean advantage is about 0.
    - Under the scales "group", "maxrl", "batch" and "none", the root mean square is within 1.3
      times what GRPO is expected to have on the same prompts, in groups of the trainer's size, and
      no advantage is above five times the deviation. With `sized_as="group"`, the trainer's own
      scale, those of "none" are then multiplied by one number, which gives them the root mean
      square of "group".

    A row whose expected success is NaN is left out of all statistics and gets 0.

    Raises:
        InputError: as `group_advantages`; "policy" for a policy without a rule of its own.
    """
    if baseline == "policy" and rollouts.expected_R is None:
        raise InputError(
            "baseline='policy' is the policy's own rule (`Policy.expect`), and this policy has "
            "none. Use another baseline, such as 'posterior'.",
            argument="baseline",
        )
    check_maxrl(baseline, scale)
    if baseline not in ("posterior", "policy"):
        return Advantages(*in_groups(rollouts, baseline, scale, weight))

    posterior, group_R = baseline == "posterior", rollouts.group_R
    own = rollouts.by_beliefs if posterior else Expected.of(rollouts, rollouts.expected_R)
    baseline_R, trained_R = own.rewards_R, ~np.isnan(own.rewards_R)
    counted_R = trained_R * (prompt_weights(trained_R, group_R) if weight == "prompt" else 1.0)
    if posterior:
        like_R = np.sqrt(own.calibration.spread_R)  # the deviation, but for a factor
        weight_R = counted_R / _objective(scale, own.mean_R, like_R)
        baseline_R = baseline_R + own.shared(rollouts, weight_R)
    rewards_R = np.where(trained_R, rollouts.rewards_R, np.nan)
    if not some_unequal(rewards_R):
        return Advantages(np.zeros(len(rollouts)), baseline_R)

    away_R = np.where(trained_R, rewards_R - baseline_R, 0.0)
    if not posterior and scale != "group":
        values_R = counted_R * scaled_in_step(away_R, rewards_R, scale, rollouts.lengths_R)
        return Advantages(values_R, baseline_R)
    unit_R = _objective(scale, own.mean_R, own.deviation_R)
    weight_R = counted_R / unit_R
    if scale in ("group", "maxrl", "batch", "none"):
        weight_R = weight_R / _excess(own, rollouts, away_R, weight_R, scale)
    most_R = LARGEST * (own.deviation_R / unit_R)
    values_R = np.clip(weight_R * away_R, -most_R, most_R)
    if posterior and (changed_R := own.calibration.changed_R & trained_R).any():
        n_R, sum_R = (rollouts.sum_of_others(x_R) for x_R in (trained_R, values_R))
        leans_R = changed_R * sum_R / np.maximum(n_R, 1.0)  # those that were cut off are missing
        values_R = np.clip(weight_R * away_R - leans_R, -most_R, most_R)
    if (scale, sized_as) == ("none", "group"):
        as_group_R = batch_advantages(rollouts, baseline, "group", weight).values_R
        values_R = values_R * np.sqrt(np.sum(as_group_R**2) / max(np.sum(values_R**2), 1e-300))
    values_R = scaled_in_step(values_R, rewards_R, scale, rollouts.lengths_R)
    return Advantages(values_R, baseline_R)


def _objective(scale: Scale, mean_R: FloatArray, deviation_R: FloatArray) -> FloatArray:
    """What a reward minus its baseline is divided by, where success has this mean and rewards have
    this deviation."""
    if scale == "group":
        return deviation_R
    if scale == "maxrl":
        m_R = np.nan_to_num(mean_R, nan=0.5)
        return np.asarray(deviation_R * (maxrl_unit(m_R) / np.sqrt(bernoulli_variance(m_R))))
    return np.ones(len(deviation_R))


def _excess(
    own: Expected, rollouts: Rollouts, away_R: FloatArray, weight_R: FloatArray, scale: Scale
) -> FloatArray:
    """What to divide by: the part of the ratio between the root mean square of advantages and
    GRPO's that lies outside 1 / 1.3 to 1.3.

    It is that of each rollout's other prompts. "group" and "maxrl" have one ratio for the step: a
    rare success would otherwise have a larger factor than the failures.
    """
    divided, trained_R = scale in ("group", "maxrl"), weight_R > 0
    total = np.sum if divided else rollouts.sum_of_others
    group = rollouts.group
    n, size = np.maximum(total(trained_R), 1.0), total(away_R**2)
    square = total((away_R * weight_R) ** 2)
    if divided:
        # By Jensen's inequality, at most that of prompts which all have the mean variance of these:
        # as returning prompts deviate from their own mean, and others from the mean of all.
        success_R = rollouts.success_R[trained_R & ~np.isnan(rollouts.success_R)]
        rate = (success_R.sum() + 1) / (len(success_R) + 2)
        earlier, returning = rollouts.earlier, min(own.sums.pairs, n)
        usual = earlier.within / earlier.pairs if earlier.pairs > 0 else 0.25
        within = min((own.sums.within + usual) / (own.sums.pairs + 1), rate * (1 - rate))
        equal = returning * chance_equal(within, group)
        equal += (n - returning) * chance_equal(rate * (1 - rate), group)
        grpo = np.minimum(total(own.grpo_R), (group - 1) / group * (n - own.same * equal))
        # GRPO adds EPS too: tiny differences stay tiny
        grpo *= size / n / (np.sqrt(size / n) + EPS) ** 2
    else:
        # Within a prompt lies a share of what is seen now, and at most what was seen before or all
        # variance.
        rewards_R = np.where(trained_R, rollouts.rewards_R, 0.0)
        everything = total(rewards_R**2) - total(rewards_R) ** 2 / n
        within = total(own.within_R)
        share = within / np.maximum(total(trained_R * own.deviation_R**2), 1e-300)
        grpo = (group - 1) / group * np.minimum(np.minimum(share * size, within), everything)
    least = 1e-5 * grpo + 1e-12
    ratio = np.sqrt((square + least) / (grpo + least))
    return np.asarray(ratio / np.clip(ratio, 1 / _APART, _APART))
