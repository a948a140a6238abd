"""The advantages of a whole step, for all trainers and simulations."""

from dataclasses import dataclass

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import extremes, unequal
from budgetalloc.beliefs.variance import GROUP
from budgetalloc.errors import InputError
from budgetalloc.policies.advantages import EPS, Baseline, Scale, Weight, group_advantages
from budgetalloc.policies.posterior_baseline import PosteriorBaseline, by_beliefs, by_rule
from budgetalloc.policies.rollouts import Rollouts

__all__ = ["LARGEST", "Advantages", "batch_advantages"]

LARGEST = 5.0
"""The largest advantage under scale "group": twice the largest of GRPO in groups of 8. 0/1 rewards
stay below it."""
# the largest ratio to GRPO's size; following GRPO at every step would make Adam's steps uneven
_APART = 1.3


@dataclass(frozen=True, eq=False)
class Advantages:
    """The advantages of a step.

    Args:
        values_R: The advantages, shape (R,); 0 for a rollout not to train on.
        baseline_R: The baseline in units of the rewards; NaN for a rollout not to train on.
    """

    values_R: FloatArray
    baseline_R: FloatArray


def batch_advantages(
    rollouts: Rollouts, baseline: Baseline, scale: Scale, weight: Weight = "rollout"
) -> Advantages:
    """The advantages of a step, in the units of `group_advantages`, with rewards on any scale.

    If all rewards of the step are equal, all advantages are 0.

    Under "posterior" and "policy" the expected success becomes an expected reward
    (`PosteriorBaseline.line`). With scale "group" the difference is divided by its expected
    standard deviation, sqrt(m (1-m)) for 0/1 successes and learned for graded ones. Two things hold
    for "posterior", whatever the rewards did before:

    - From the step on in which the rewards of all prompts change, the mean advantage is about 0.
      What the step's other prompts got more or less than expected becomes part of the expectation
      (`calibration` and `shared` of `PosteriorBaseline`).
    - Under the scales "group", "batch" and "none", the root mean square is within 1.3 times what
      GRPO in groups of 8 is expected to have on the same prompts, and no advantage is above five
      times the deviation.

    Args:
        rollouts: The step.
        baseline, scale, weight: As in `group_advantages`. A row whose expected success is NaN is
            left out of all statistics and gets 0.

    Raises:
        InputError: as `group_advantages`.
    """
    rewards_R, ids_R, lengths_R = rollouts.rewards_R, rollouts.ids_R, rollouts.lengths_R
    uses_beliefs = baseline in ("posterior", "policy")
    if baseline == "policy" and rollouts.expected_R is None:
        raise InputError(
            "baseline='policy' is the policy's own rule (`Policy.expect`), and this policy has "
            "none. Use another "
            "baseline, such as 'posterior'."
        )
    rows = len(rewards_R)
    if not uses_beliefs:
        away_R = group_advantages(rewards_R, ids_R, baseline, "none")
        if not _some_unequal(rewards_R):
            return Advantages(np.zeros(rows), rewards_R - away_R)
        values_R = group_advantages(rewards_R, ids_R, baseline, scale, weight, lengths_R=lengths_R)
        return Advantages(values_R, rewards_R - away_R)
    own = by_beliefs(rollouts) if baseline == "posterior" else by_rule(rollouts)
    expected_R, deviation_R = own.compared.expected_R, own.compared.deviation_R
    trained_R = ~np.isnan(expected_R)
    fresh_R = np.where(trained_R, rewards_R, np.nan)
    own_rule = own.rule_R is not None
    weight_R = np.where(
        trained_R, group_advantages(np.ones(rows), ids_R, np.zeros(rows), "none", weight), 0.0
    )
    if not own_rule:
        # the deviation, but for a factor
        like_R = np.sqrt(own.calibration.spread_R) if scale == "group" else 1.0
        expected_R = expected_R + own.shared(weight_R / like_R)
    if not _some_unequal(fresh_R):
        return Advantages(np.zeros(rows), expected_R)
    if own_rule and scale != "group":
        values_R = group_advantages(
            fresh_R, ids_R, np.nan_to_num(expected_R), scale, weight, lengths_R=lengths_R
        )
        return Advantages(values_R, expected_R)

    unit_R = deviation_R if scale == "group" else np.ones(rows)
    away_R, times_R = np.where(trained_R, rewards_R - expected_R, 0.0), weight_R / unit_R
    if scale in ("group", "batch", "none"):
        times_R = times_R / _excess(own, away_R, times_R, scale)
    most_R = LARGEST * (deviation_R / unit_R)
    values_R = np.clip(away_R * times_R, -most_R, most_R)
    if scale != "group":
        values_R = group_advantages(
            fresh_R, ids_R, np.nan_to_num(fresh_R - values_R), scale, lengths_R=lengths_R
        )
    return Advantages(values_R, expected_R)


def _excess(
    own: PosteriorBaseline, away_R: FloatArray, times_R: FloatArray, scale: Scale
) -> FloatArray | float:
    """What to divide by: the part of the ratio between the root mean square of advantages and
    GRPO's that lies outside 1 / 1.3 to 1.3. Under the other scales it is that of each rollout's
    other prompts, and the gradient stays unbiased. Scale "group" has one ratio for the step: a rare
    success would otherwise have a larger factor than the failures."""
    rollouts, compared, trained_R = own.rollouts, own.compared, times_R > 0
    total = np.sum if scale == "group" else own.of_others
    n, square, size = (
        np.maximum(total(trained_R), 1.0),
        total((away_R * times_R) ** 2),
        total(away_R**2),
    )
    if scale == "group":
        # By Jensen's inequality, at most that of prompts which all succeed as often as these do on
        # average.
        success_R = rollouts.success_R[trained_R & ~np.isnan(rollouts.success_R)]
        rate = (success_R.sum() + 1) / (len(success_R) + 2)
        most = 1 - compared.same * (rate**GROUP + (1 - rate) ** GROUP)
        grpo = np.minimum(total(compared.grpo_R), n * (GROUP - 1) / GROUP * most)
        # GRPO adds EPS too: tiny differences stay tiny
        grpo *= size / n / (np.sqrt(size / n) + EPS) ** 2
    else:
        # Within a prompt lies a share of what is seen now, and at most what was seen before or all
        # variance.
        rewards_R = np.where(trained_R, rollouts.rewards_R, 0.0)
        everything, within = (
            total(rewards_R**2) - total(rewards_R) ** 2 / n,
            total(compared.within_R),
        )
        share = within / np.maximum(total(trained_R * compared.deviation_R**2), 1e-300)
        grpo = (GROUP - 1) / GROUP * np.minimum(np.minimum(share * size, within), everything)
    least = 1e-5 * grpo + 1e-12
    ratio = np.sqrt((square + least) / (grpo + least))
    return np.asarray(ratio / np.clip(ratio, 1 / _APART, _APART))


def _some_unequal(rewards_R: FloatArray) -> bool:
    low, high = extremes(rewards_R, np.zeros(len(rewards_R), dtype=np.int64), 1)
    return bool(unequal(low, high)[0])
