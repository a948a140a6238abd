"""The advantages of a whole step, for all trainers and simulations."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.expected_reward import Line, Sums, reward_line
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import extremes, unequal
from budgetalloc.beliefs.variance import GROUP, Known, deviations, grpo_square, share_alike, variances
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.policies.advantages import EPS, Baseline, Scale, Weight, group_advantages, posterior_mean, sum_until

_BoolArray = NDArray[np.bool_]

__all__ = ["LARGEST", "Advantages", "Rollouts", "batch_advantages"]

LARGEST = 5.0
"""The largest advantage under scale "group": twice the largest of GRPO in groups of 8. 0/1 rewards stay below it."""
_APART = 1.3  # the largest ratio to GRPO's size; following GRPO at every step would make Adam's steps uneven
_BELOW, _ABOVE = 0.12, 0.25  # mean advantages below 0 and above the usual that are a change of rewards, in deviations
_RAREST = 0.02  # means of success beyond this, and beyond 1 minus it, are recalibrated like it
_FEW = 2.0  # rollouts that show nothing in common: they count in small steps
_DOUBT = 10.0  # weight of k = 0 in the recalibration, in units of sqrt(m (1-m)) log(m / (1-m))^2


@dataclass(frozen=True, eq=False)
class Advantages:
    """The advantages of a step.

    Args:
        values_R: The advantages, shape (R,); 0 for a rollout not to train on.
        baseline_R: The baseline in units of the rewards; NaN for a rollout not to train on.
    """

    values_R: FloatArray
    baseline_R: FloatArray


class _Calibration(NamedTuple):
    """Posterior means m of success, m (1-m), log(m / (1-m)); what moves the means; whether the rewards of all prompts
    have changed; and the mean advantage of the step's other prompts in root mean squares, or the usual one if it is
    far above that."""

    believed_R: FloatArray
    spread_R: FloatArray
    logit_R: FloatArray
    d_R: FloatArray
    k_R: FloatArray
    changed_R: _BoolArray
    lean_R: FloatArray

    @property
    def mean_R(self) -> FloatArray:
        return np.clip(self.believed_R + (self.d_R + self.k_R * self.logit_R) * self.spread_R, 0.0, 1.0)


class _Compared(NamedTuple):
    """What is expected of each rollout, without its own reward.

    Args:
        expected_R: Its reward; NaN for a rollout not to train on.
        deviation_R: The standard deviation of its reward around that.
        within_R: The variance of rewards within its prompt.
        grpo_R: The squared advantage of GRPO in groups of 8 on its prompt.
        same: The chance that the part of 8 rewards which success does not explain is equal, and no success is graded.
        step: The sums of this step.
    """

    expected_R: FloatArray
    deviation_R: FloatArray
    within_R: FloatArray
    grpo_R: FloatArray
    same: float
    step: Sums


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
        """The expected success of each rollout: by the policy's own rule, else the posterior mean, recalibrated."""
        return self.calibration.mean_R if self.expected_R is None else self.expected_R

    @property
    def without_rule(self) -> "Rollouts":
        """The same rollouts without the policy's own rule."""
        return self if self.expected_R is None else replace(self, expected_R=None)

    def sums(self) -> Sums:
        """Sums over the rewards of this step, for later steps."""
        return self.compared.step

    def of_others(self, x_R: Any) -> FloatArray:
        """For each rollout, the sum of x over the step's other prompts, without rounds after the rollout's own.

        What a baseline learns from these rollouts is independent of the rollout's own reward.
        """
        one_R = np.zeros(len(self.ids_R), dtype=np.int64)
        round_R = one_R if self.round_R is None else self.round_R
        return sum_until(x_R, one_R, round_R) - sum_until(x_R, self.group_R, round_R)

    @cached_property
    def calibration(self) -> _Calibration:
        """Posterior means m, moved by (d + k log(m / (1-m))) m (1-m) to the success of the step's other prompts.

        d and k, at most 1 in size, are one Newton step of Platt's calibration, a logistic regression of success on
        log(m / (1-m)). When rewards change for all prompts, beliefs follow over many steps, and this follows at once.
        It is left out while rewards have not changed (`_changed`).
        """
        believed_R = posterior_mean(self.success_R, self.group_R, self.baseline_R, self.round_R)
        m_R = np.clip(believed_R, _RAREST, 1 - _RAREST)
        spread_R, logit_R = m_R * (1 - m_R), np.log(m_R / (1 - m_R))
        known_R = ~(np.isnan(self.success_R) | np.isnan(self.rewards_R))
        weight_R = known_R / np.sqrt(spread_R)  # as in advantages, which are divided by the deviation
        lean_R = self._lean(weight_R * np.where(known_R, self.rewards_R - self.line.at(believed_R), 0.0), known_R)
        away_R = weight_R * np.where(known_R, self.success_R - believed_R, 0.0)
        level, cross, slope = (self.of_others(weight_R * spread_R * logit_R**power) for power in (0, 1, 2))
        level, slope = level + _FEW / 2, slope + _DOUBT  # sqrt(m (1-m)) is at most 1/2
        f_R, g_R = self.of_others(away_R), self.of_others(away_R * logit_R)
        k_R = np.clip((level * g_R - cross * f_R) / (level * slope - cross**2), -1.0, 1.0)
        d_R = np.clip((f_R - k_R * cross) / level, -1.0, 1.0)
        below_R, above_R = self._changed(lean_R, self.of_others(known_R))
        changed_R, usual_R = below_R | above_R, np.where(above_R, max(self._usual, 0.0), lean_R)
        return _Calibration(believed_R, spread_R, logit_R, changed_R * d_R, changed_R * k_R, changed_R, usual_R)

    def _lean(self, away_R: FloatArray, known_R: _BoolArray) -> FloatArray:
        """The mean of the other prompts' differences from what was believed, in units of their root mean square."""
        away_R = np.nan_to_num(away_R)
        square_R = self.of_others(away_R**2) * self.of_others(known_R)
        return np.asarray(self.of_others(away_R) / np.sqrt(np.maximum(square_R, 1e-24)))

    def _changed(self, lean_R: FloatArray, n_R: FloatArray) -> tuple[_BoolArray, _BoolArray]:
        """Whether the rewards of all prompts are below what was believed, and above it by more than in earlier steps.

        A model that learns quickly exceeds beliefs, more and more, and these advantages help it. It neither falls short
        of them nor exceeds them at once. In small steps, those before count too if they fell short.
        """
        error_R = 1 / np.sqrt(np.maximum(n_R, 1.0))
        above_R = lean_R > max(self._usual, 0.0) + np.maximum(_ABOVE, 2 * error_R)
        past_R = np.minimum(3 * n_R, self.earlier.n) * (self._usual < 0)
        n_R = n_R + past_R
        below_R = (n_R - past_R) * lean_R + past_R * self._usual < -np.maximum(_BELOW * n_R, 2 * np.sqrt(n_R))
        return np.asarray(below_R), np.asarray(above_R)

    @property
    def _usual(self) -> float:
        """The mean advantage of earlier steps, without those that exceeded it at once."""
        return float(self.earlier.lean / self.earlier.n) if self.earlier.n > 0 else 0.0

    def shared(self, weight_R: FloatArray) -> FloatArray:
        """For each rollout, how far the rewards of the step's other prompts are above their expectation on average.

        The expectation is by the line and the calibration of the rollout, which are independent of its own reward.

        Args:
            weight_R: The weight of each rollout, independent of rewards.
        """
        line, own = self.line, self.calibration
        columns = np.nan_to_num(self.rewards_R), 1.0, own.believed_R, own.spread_R, own.spread_R * own.logit_R
        rewards_R, n_R, mean_R, d_R, k_R = (self.of_others(weight_R * x_R) for x_R in columns)
        success_R = mean_R + own.d_R * d_R + own.k_R * k_R
        above_R = np.nan_to_num(rewards_R - line.start_R * n_R - line.slope_R * success_R)
        rows_R = self.of_others(weight_R > 0)
        return np.asarray(own.changed_R * above_R / np.maximum(n_R, 1e-9) * rows_R / (rows_R + _FEW))

    @cached_property
    def compared(self) -> _Compared:
        """What is expected of each rollout, without its own reward."""
        line, known = self.line, Known.of(self.success_R, self.group_R, self.belief_R, self.prior)
        within, pairs = deviations(self.success_R, known)
        rest_R = self.rewards_R - self.jump * self.success_R
        step = Sums().plus(self.success_R, self.rewards_R)
        step = replace(step, within=within, pairs=pairs, alike=step.n * share_alike(rest_R))
        if self.expected_R is None and step.n > 0:
            step = replace(step, lean=step.n * float(self.calibration.lean_R.mean()))
        sums = self.earlier.with_sums(step)

        trained_R = ~(np.isnan(self.rewards_R) | np.isnan(self.mean_R))
        mean_R = np.where(trained_R, np.nan_to_num(self.mean_R), 0.5)
        scored_R = ~np.isnan(self.success_R)
        mass_R = self.baseline_R.mass + np.bincount(self.group_R, weights=scored_R)[self.group_R] - scored_R
        within_R, error_R = variances(mean_R, mass_R, known, sums)
        expected_R, deviation_R = line.at(mean_R), line.deviation(within_R + error_R) + EPS
        nothing_R = np.isnan(expected_R)  # a first step with one prompt has no other rollouts
        expected_R = np.where(nothing_R, np.nan_to_num(self.rewards_R), expected_R)

        alike, graded = (float(x / sums.n) if sums.n > 0 else 1.0 for x in (sums.alike, sums.graded))
        m_R = np.clip(mean_R, 1e-6, 1 - 1e-6)
        grpo_R = grpo_square(Beta(mass_R * m_R, mass_R * (1 - m_R)), known, graded, alike)
        return _Compared(
            expected_R=np.where(trained_R, expected_R, np.nan),
            deviation_R=np.where(nothing_R, 1.0, deviation_R),
            within_R=np.where(trained_R & ~nothing_R, line.deviation(within_R) ** 2, 0.0),
            grpo_R=np.where(trained_R, grpo_R, 0.0),
            same=alike * (1 - graded) ** GROUP,
            step=step,
        )


def batch_advantages(rollouts: Rollouts, baseline: Baseline, scale: Scale, weight: Weight = "rollout") -> Advantages:
    """The advantages of a step, in the units of `group_advantages`, with rewards on any scale.

    If all rewards of the step are equal, all advantages are 0.

    Under "posterior" and "policy" the expected success becomes an expected reward (`Rollouts.line`). With scale "group"
    the difference is divided by its expected standard deviation, sqrt(m (1-m)) for 0/1 successes and learned for graded
    ones. Two things hold for "posterior", whatever the rewards did before:

    - From the step on in which the rewards of all prompts change, the mean advantage is about 0. What the step's other
      prompts got more or less than expected becomes part of the expectation (`Rollouts.calibration`, `shared`).
    - Under the scales "group", "batch" and "none", the root mean square is within 1.3 times what GRPO in groups of 8
      is expected to have on the same prompts, and no advantage is above five times the deviation.

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
    expected_R, deviation_R = rollouts.compared.expected_R, rollouts.compared.deviation_R
    trained_R = ~np.isnan(expected_R)
    fresh_R = np.where(trained_R, rewards_R, np.nan)
    own_rule = rollouts.expected_R is not None
    weight_R = np.where(trained_R, group_advantages(np.ones(rows), ids_R, np.zeros(rows), "none", weight), 0.0)
    if not own_rule:
        like_R = np.sqrt(rollouts.calibration.spread_R) if scale == "group" else 1.0  # the deviation, but for a factor
        expected_R = expected_R + rollouts.shared(weight_R / like_R)
    if not _some_unequal(fresh_R):
        return Advantages(np.zeros(rows), expected_R)
    if own_rule and scale != "group":
        values_R = group_advantages(fresh_R, ids_R, np.nan_to_num(expected_R), scale, weight, lengths_R=lengths_R)
        return Advantages(values_R, expected_R)

    unit_R = deviation_R if scale == "group" else np.ones(rows)
    away_R, times_R = np.where(trained_R, rewards_R - expected_R, 0.0), weight_R / unit_R
    if scale in ("group", "batch", "none"):
        times_R = times_R / _excess(rollouts, away_R, times_R, scale)
    most_R = LARGEST * (deviation_R / unit_R)
    values_R = np.clip(away_R * times_R, -most_R, most_R)
    if scale != "group":
        values_R = group_advantages(fresh_R, ids_R, np.nan_to_num(fresh_R - values_R), scale, lengths_R=lengths_R)
    return Advantages(values_R, expected_R)


def _excess(rollouts: Rollouts, away_R: FloatArray, times_R: FloatArray, scale: Scale) -> FloatArray | float:
    """What to divide by: the part of the ratio between the root mean square of advantages and GRPO's that lies outside
    1 / 1.3 to 1.3. Under the other scales it is that of each rollout's other prompts, and the gradient stays unbiased.
    Scale "group" has one ratio for the step: a rare success would otherwise have a larger factor than the failures."""
    compared, trained_R = rollouts.compared, times_R > 0
    total = np.sum if scale == "group" else rollouts.of_others
    n, square, size = np.maximum(total(trained_R), 1.0), total((away_R * times_R) ** 2), total(away_R**2)
    if scale == "group":
        # By Jensen's inequality, at most that of prompts which all succeed as often as these do on average.
        success_R = rollouts.success_R[trained_R & ~np.isnan(rollouts.success_R)]
        rate = (success_R.sum() + 1) / (len(success_R) + 2)
        most = 1 - compared.same * (rate**GROUP + (1 - rate) ** GROUP)
        grpo = np.minimum(total(compared.grpo_R), n * (GROUP - 1) / GROUP * most)
        grpo *= size / n / (np.sqrt(size / n) + EPS) ** 2  # GRPO adds EPS too: tiny differences stay tiny
    else:
        # Within a prompt lies a share of what is seen now, and at most what was seen before or all variance.
        rewards_R = np.where(trained_R, rollouts.rewards_R, 0.0)
        everything, within = total(rewards_R**2) - total(rewards_R) ** 2 / n, total(compared.within_R)
        share = within / np.maximum(total(trained_R * compared.deviation_R**2), 1e-300)
        grpo = (GROUP - 1) / GROUP * np.minimum(np.minimum(share * size, within), everything)
    least = 1e-5 * grpo + 1e-12
    ratio = np.sqrt((square + least) / (grpo + least))
    return np.asarray(ratio / np.clip(ratio, 1 / _APART, _APART))


def _some_unequal(rewards_R: FloatArray) -> bool:
    low, high = extremes(rewards_R, np.zeros(len(rewards_R), dtype=np.int64), 1)
    return bool(unequal(low, high)[0])
