"""What is expected of a step's rollouts, each without its own reward: the posterior baseline and
its deviation."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.expected_reward import Line, Sums, reward_line
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.variance import (
    GROUP,
    Known,
    deviations,
    grpo_square,
    share_alike,
    variances,
)
from budgetalloc.policies.advantages import EPS, posterior_mean, sum_until
from budgetalloc.policies.rollouts import Rollouts

__all__ = ["PosteriorBaseline", "by_beliefs", "by_rule", "sums_of"]

_BoolArray = NDArray[np.bool_]

# mean advantages below 0 and above the usual that are a change of rewards, in deviations
_BELOW, _ABOVE = 0.12, 0.25
_RAREST = 0.02  # means of success beyond this, and beyond 1 minus it, are recalibrated like it
_FEW = 2.0  # rollouts that show nothing in common: they count in small steps
_DOUBT = 10.0  # weight of k = 0 in the recalibration, in units of sqrt(m (1-m)) log(m / (1-m))^2


class _Calibration(NamedTuple):
    """Posterior means m of success, m (1-m), log(m / (1-m)); what moves the means; whether the
    rewards of all prompts have changed; and the mean advantage of the step's other prompts in root
    mean squares, or the usual one if it is far above that."""

    believed_R: FloatArray
    spread_R: FloatArray
    logit_R: FloatArray
    d_R: FloatArray
    k_R: FloatArray
    changed_R: _BoolArray
    lean_R: FloatArray

    @property
    def mean_R(self) -> FloatArray:
        return np.clip(
            self.believed_R + (self.d_R + self.k_R * self.logit_R) * self.spread_R, 0.0, 1.0
        )


class _Compared(NamedTuple):
    """What is expected of each rollout, without its own reward.

    Args:
        expected_R: Its reward; NaN for a rollout not to train on.
        deviation_R: The standard deviation of its reward around that.
        within_R: The variance of rewards within its prompt.
        grpo_R: The squared advantage of GRPO in groups of 8 on its prompt.
        same: The chance that the part of 8 rewards which success does not explain is equal, and no
            success is graded.
        step: The sums of this step.
    """

    expected_R: FloatArray
    deviation_R: FloatArray
    within_R: FloatArray
    grpo_R: FloatArray
    same: float
    step: Sums


@dataclass(frozen=True, eq=False)
class PosteriorBaseline:
    """What is expected of each rollout of a step, without its own reward.

    Args:
        rollouts: The step.
        rule_R: The expected success by the policy's own rule instead of the posterior mean, NaN for
            a rollout not to train on; or None.
    """

    rollouts: Rollouts
    rule_R: FloatArray | None = None

    @cached_property
    def line(self) -> Line:
        """The expected reward of each rollout as a linear function of its success."""
        rollouts = self.rollouts
        if rollouts.reward_range is not None:
            return Line.exact(*rollouts.reward_range, len(rollouts))
        success_R, rewards_R = rollouts.success_R, rollouts.rewards_R
        return reward_line(success_R, rewards_R, rollouts.group_R, rollouts.earlier, rollouts.jump)

    @cached_property
    def mean_R(self) -> FloatArray:
        """The expected success of each rollout: by the policy's own rule, else the posterior mean,
        recalibrated."""
        return self.calibration.mean_R if self.rule_R is None else self.rule_R

    def of_others(self, x_R: Any) -> FloatArray:
        """For each rollout, the sum of x over the step's other prompts, without rounds after the
        rollout's own.

        What a baseline learns from these rollouts is independent of the rollout's own reward.
        """
        one_R, round_R = np.zeros(len(self.rollouts), dtype=np.int64), self.rollouts.round_R
        return sum_until(x_R, one_R, round_R) - sum_until(x_R, self.rollouts.group_R, round_R)

    @cached_property
    def calibration(self) -> _Calibration:
        """Posterior means m, moved by (d + k log(m / (1-m))) m (1-m) to the success of the step's
        other prompts.

        d and k, at most 1 in size, are one Newton step of Platt's calibration, a logistic
        regression of success on log(m / (1-m)). When rewards change for all prompts, beliefs follow
        over many steps, and this follows at once. It is left out while rewards have not changed
        (`_changed`).
        """
        success_R, rewards_R = self.rollouts.success_R, self.rollouts.rewards_R
        believed_R = posterior_mean(
            success_R, self.rollouts.group_R, self.rollouts.baseline_R, self.rollouts.round_R
        )
        m_R = np.clip(believed_R, _RAREST, 1 - _RAREST)
        spread_R, logit_R = m_R * (1 - m_R), np.log(m_R / (1 - m_R))
        known_R = ~(np.isnan(success_R) | np.isnan(rewards_R))
        # as in advantages, which are divided by the deviation
        weight_R = known_R / np.sqrt(spread_R)
        lean_R = self._lean(
            weight_R * np.where(known_R, rewards_R - self.line.at(believed_R), 0.0), known_R
        )
        away_R = weight_R * np.where(known_R, success_R - believed_R, 0.0)
        level, cross, slope = (
            self.of_others(weight_R * spread_R * logit_R**power) for power in (0, 1, 2)
        )
        level, slope = level + _FEW / 2, slope + _DOUBT  # sqrt(m (1-m)) is at most 1/2
        f_R, g_R = self.of_others(away_R), self.of_others(away_R * logit_R)
        k_R = np.clip((level * g_R - cross * f_R) / (level * slope - cross**2), -1.0, 1.0)
        d_R = np.clip((f_R - k_R * cross) / level, -1.0, 1.0)
        below_R, above_R = self._changed(lean_R, self.of_others(known_R))
        changed_R, usual_R = below_R | above_R, np.where(above_R, max(self._usual, 0.0), lean_R)
        return _Calibration(
            believed_R, spread_R, logit_R, changed_R * d_R, changed_R * k_R, changed_R, usual_R
        )

    def _lean(self, away_R: FloatArray, known_R: _BoolArray) -> FloatArray:
        """The mean of the other prompts' differences from what was believed, in units of their root
        mean square."""
        away_R = np.nan_to_num(away_R)
        square_R = self.of_others(away_R**2) * self.of_others(known_R)
        return np.asarray(self.of_others(away_R) / np.sqrt(np.maximum(square_R, 1e-24)))

    def _changed(self, lean_R: FloatArray, n_R: FloatArray) -> tuple[_BoolArray, _BoolArray]:
        """Whether the rewards of all prompts are below what was believed, and above it by more than
        in earlier steps.

        A model that learns quickly exceeds beliefs, more and more, and these advantages help it. It
        neither falls short of them nor exceeds them at once. In small steps, those before count too
        if they fell short.
        """
        error_R = 1 / np.sqrt(np.maximum(n_R, 1.0))
        above_R = lean_R > max(self._usual, 0.0) + np.maximum(_ABOVE, 2 * error_R)
        past_R = np.minimum(3 * n_R, self.rollouts.earlier.n) * (self._usual < 0)
        n_R = n_R + past_R
        below_R = (n_R - past_R) * lean_R + past_R * self._usual < -np.maximum(
            _BELOW * n_R, 2 * np.sqrt(n_R)
        )
        return np.asarray(below_R), np.asarray(above_R)

    @property
    def _usual(self) -> float:
        """The mean advantage of earlier steps, without those that exceeded it at once."""
        earlier = self.rollouts.earlier
        return float(earlier.lean / earlier.n) if earlier.n > 0 else 0.0

    def shared(self, weight_R: FloatArray) -> FloatArray:
        """For each rollout, how far the rewards of the step's other prompts are above their
        expectation on average.

        The expectation is by the line and the calibration of the rollout, which are independent of
        its own reward.

        Args:
            weight_R: The weight of each rollout, independent of rewards.
        """
        line, own = self.line, self.calibration
        columns = (
            np.nan_to_num(self.rollouts.rewards_R),
            1.0,
            own.believed_R,
            own.spread_R,
            own.spread_R * own.logit_R,
        )
        rewards_R, n_R, mean_R, d_R, k_R = (self.of_others(weight_R * x_R) for x_R in columns)
        success_R = mean_R + own.d_R * d_R + own.k_R * k_R
        above_R = np.nan_to_num(rewards_R - line.start_R * n_R - line.slope_R * success_R)
        rows_R = self.of_others(weight_R > 0)
        return np.asarray(
            own.changed_R * above_R / np.maximum(n_R, 1e-9) * rows_R / (rows_R + _FEW)
        )

    @cached_property
    def compared(self) -> _Compared:
        """What is expected of each rollout, without its own reward."""
        rollouts, line = self.rollouts, self.line
        success_R, rewards_R, group_R = rollouts.success_R, rollouts.rewards_R, rollouts.group_R
        known = Known.of(
            success_R, group_R, rollouts.belief_R, (rollouts.prior.alpha_P, rollouts.prior.beta_P)
        )
        within, pairs = deviations(success_R, known)
        rest_R = rewards_R - rollouts.jump * success_R
        step = Sums().plus(success_R, rewards_R)
        step = replace(step, within=within, pairs=pairs, alike=step.n * share_alike(rest_R))
        if self.rule_R is None and step.n > 0:
            step = replace(step, lean=step.n * float(self.calibration.lean_R.mean()))
        sums = rollouts.earlier.with_sums(step)

        trained_R = ~(np.isnan(rewards_R) | np.isnan(self.mean_R))
        mean_R = np.where(trained_R, np.nan_to_num(self.mean_R), 0.5)
        scored_R = ~np.isnan(success_R)
        mass_R = (
            rollouts.baseline_R.mass + np.bincount(group_R, weights=scored_R)[group_R] - scored_R
        )
        within_R, error_R = variances(mean_R, mass_R, known, sums)
        expected_R, deviation_R = line.at(mean_R), line.deviation(within_R + error_R) + EPS
        nothing_R = np.isnan(expected_R)  # a first step with one prompt has no other rollouts
        expected_R = np.where(nothing_R, np.nan_to_num(rewards_R), expected_R)

        alike, graded = (
            float(x / sums.n) if sums.n > 0 else 1.0 for x in (sums.alike, sums.graded)
        )
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


@lru_cache(maxsize=2)  # advantages, rails and metrics of a step ask for the same
def by_beliefs(rollouts: Rollouts) -> PosteriorBaseline:
    """What is expected of each rollout by the beliefs."""
    return PosteriorBaseline(rollouts)


def by_rule(rollouts: Rollouts) -> PosteriorBaseline:
    """What is expected of each rollout by the policy's own rule; without one, by the beliefs."""
    return (
        by_beliefs(rollouts)
        if rollouts.expected_R is None
        else PosteriorBaseline(rollouts, rollouts.expected_R)
    )


def sums_of(rollouts: Rollouts) -> Sums:
    """Sums over the step's rewards and successes, for later steps; rollouts with a hint are left
    out."""
    learned = (
        replace(rollouts, success_R=rollouts.learned_R) if rollouts.hinted_R.any() else rollouts
    )
    return by_rule(learned).compared.step
