"""The advantages of a whole step, for all trainers and simulations."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.expected_reward import Line, Sums, reward_line
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import extremes, unequal
from budgetalloc.beliefs.variance import GROUP, Known, deviations, grpo_square, share_alike, success_variance
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.policies.advantages import EPS, Baseline, Scale, Weight, group_advantages, posterior_mean

__all__ = ["LARGEST", "Advantages", "Rollouts", "batch_advantages"]

LARGEST = 5.0
"""The largest advantage under scale "group": twice the largest of GRPO in groups of 8. 0/1 rewards stay below it."""
_APART = 1.35  # the largest ratio to GRPO's size; following GRPO at every step would make Adam's steps uneven
_LEAST = 0.25  # advantages become at most four times as large: tiny differences are not blown up


@dataclass(frozen=True, eq=False)
class Advantages:
    """The advantages of a step.

    Args:
        values_R: The advantages, shape (R,); 0 for a rollout not to train on.
        baseline_R: The baseline in units of the rewards; NaN for a rollout not to train on.
    """

    values_R: FloatArray
    baseline_R: FloatArray


@dataclass(frozen=True, eq=False)
class Rollouts:
    """The rollouts of a step, and the beliefs about their prompts before it.

    Args:
        ids_R: The prompt of each rollout.
        group_R: The index of its group, from 0.
        rewards_R: Its reward on the trainer's scale, NaN for none.
        success_R: Its success in [0, 1], NaN for none.
        belief_R: The belief about its prompt before the step.
        baseline_R: The belief for the baseline (`Step.baseline_belief`).
        prior: Pseudo-successes and pseudo-failures of the prior that `belief_R` contains, numbers or shape (R,).
        earlier: Sums over the rewards of earlier steps.
        reward_range: The rewards at success 0 and 1 if success is the reward mapped by this range, else None.
        jump: The initial estimate of the rise in reward from failure to success.
        expected_R: The success expected by the policy's own rule, NaN for a rollout not to train on; or None.
        lengths_R: Its tokens.
        round_R: The round of the step in which it was generated, from 0; None if there was one round.
    """

    ids_R: list[Any]
    group_R: IntArray
    rewards_R: FloatArray
    success_R: FloatArray
    belief_R: Beta
    baseline_R: Beta
    prior: tuple[float | FloatArray, float | FloatArray]
    earlier: Sums
    reward_range: tuple[float, float] | None
    jump: float = 1.0
    expected_R: FloatArray | None = None
    lengths_R: ArrayLike | None = None
    round_R: IntArray | None = None

    @cached_property
    def line(self) -> Line:
        """The expected reward of each rollout as a linear function of its success."""
        if self.reward_range is not None:
            return Line.exact(*self.reward_range, len(self.rewards_R))
        return reward_line(self.success_R, self.rewards_R, self.group_R, self.earlier, self.jump)

    @cached_property
    def mean_R(self) -> FloatArray:
        """The expected success of each rollout: by the policy's own rule, else the posterior mean."""
        if self.expected_R is not None:
            return self.expected_R
        return posterior_mean(self.success_R, self.group_R, self.baseline_R, self.round_R)

    @property
    def without_rule(self) -> "Rollouts":
        """The same rollouts without the policy's own rule."""
        return self if self.expected_R is None else replace(self, expected_R=None)

    def sums(self) -> Sums:
        """Sums over the rewards of this step, for later steps."""
        return self._compared[2]

    @cached_property
    def _compared(self) -> tuple[FloatArray, FloatArray, Sums]:
        """The expected reward of each rollout, the standard deviation around it, and the sums of this step."""
        line, known = self.line, Known.of(self.success_R, self.group_R, self.belief_R, self.prior)
        within, pairs = deviations(self.success_R, known)
        rest_R = self.rewards_R - self.jump * self.success_R
        step = Sums().plus(self.success_R, self.rewards_R)
        step = replace(step, within=within, pairs=pairs, alike=step.n * share_alike(rest_R))
        sums = self.earlier.with_sums(step)

        mean_R = self.mean_R
        trained_R = ~(np.isnan(self.rewards_R) | np.isnan(mean_R))
        known_R = np.where(trained_R, np.nan_to_num(mean_R), 0.5)
        expected_R = line.at(known_R)
        deviation_R = line.deviation(success_variance(known_R, known, sums)) + EPS
        nothing_R = np.isnan(expected_R)  # a first step with one prompt has no other rollouts
        expected_R = np.where(nothing_R, np.nan_to_num(self.rewards_R), expected_R)
        deviation_R = np.where(nothing_R, 1.0, deviation_R)

        away_R = np.where(trained_R, self.rewards_R - expected_R, 0.0)
        square = float(np.sum(np.minimum((away_R / deviation_R) ** 2, LARGEST**2)))
        alike, graded = (float(x / sums.n) if sums.n > 0 else 1.0 for x in (sums.alike, sums.graded))
        grpo = float(np.sum(grpo_square(self.baseline_R, known, graded, alike)[trained_R]))
        return np.where(trained_R, expected_R, np.nan), deviation_R, replace(step, square=square, grpo=grpo)


def batch_advantages(rollouts: Rollouts, baseline: Baseline, scale: Scale, weight: Weight = "rollout") -> Advantages:
    """The advantages of a step, in the units of `group_advantages`, with rewards on any scale.

    If all rewards of the step are equal, all advantages are 0.

    Under "posterior" and "policy" the expected success becomes an expected reward (`Rollouts.line`). With scale "group"
    the difference is divided by its expected standard deviation, sqrt(m (1-m)) for 0/1 successes and learned for graded
    ones. This divisor is at least a fifth of the difference. It is multiplied by one factor for the whole step, which
    keeps the root mean square of recent advantages within 1.35 times that of GRPO in groups of 8 on the same prompts.

    Args:
        rollouts: The step.
        baseline, scale, weight: As in `group_advantages`. A row whose expected success is NaN is left out of all
            statistics and gets 0.

    Raises:
        InputError: as `group_advantages`.
    """
    rewards_R, ids_R, lengths_R = rollouts.rewards_R, rollouts.ids_R, rollouts.lengths_R
    uses_beliefs = baseline in ("posterior", "policy")
    if baseline == "policy" and rollouts.expected_R is None:
        raise InputError(
            "baseline='policy' is the policy's own rule (`Policy.expect`), and this policy has none. Use another "
            "baseline, such as 'posterior'."
        )
    rows = len(rewards_R)
    if not uses_beliefs:
        away_R = group_advantages(rewards_R, ids_R, baseline, "none")
        if not _some_unequal(rewards_R):
            return Advantages(np.zeros(rows), rewards_R - away_R)
        values_R = group_advantages(rewards_R, ids_R, baseline, scale, weight, lengths_R=lengths_R)
        return Advantages(values_R, rewards_R - away_R)
    if baseline == "posterior":
        rollouts = rollouts.without_rule
    expected_R, deviation_R, _ = rollouts._compared
    trained_R, compared_R = np.where(np.isnan(expected_R), np.nan, rewards_R), np.nan_to_num(expected_R)
    if not _some_unequal(trained_R):
        return Advantages(np.zeros(rows), expected_R)
    if scale != "group":
        values_R = group_advantages(trained_R, ids_R, compared_R, scale, weight, lengths_R=lengths_R)
        return Advantages(values_R, expected_R)
    away_R = np.nan_to_num(trained_R - compared_R)
    divided_by_R = np.maximum(deviation_R * _times(rollouts.earlier), np.abs(away_R) / LARGEST)
    values_R = group_advantages(trained_R, ids_R, compared_R, "none", weight) / divided_by_R
    return Advantages(values_R, expected_R)


def _times(earlier: Sums) -> float:
    """The factor on deviations that brings recent advantages to within 1.35 times the size of GRPO's."""
    ratio = float(np.sqrt((earlier.square + GROUP) / (earlier.grpo + GROUP)))  # GROUP: a prior of ratio 1
    return max(ratio / min(max(ratio, 1 / _APART), _APART), _LEAST)


def _some_unequal(rewards_R: FloatArray) -> bool:
    low, high = extremes(rewards_R, np.zeros(len(rewards_R), dtype=np.int64), 1)
    return bool(unequal(low, high)[0])
