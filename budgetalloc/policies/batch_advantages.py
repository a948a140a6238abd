"""The advantages of a whole step, and what is expected of each rollout without its own reward."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.expected_reward import (
    GROUP,
    Known,
    Line,
    Sums,
    bernoulli_variance,
    deviations,
    grpo_square,
    reward_line,
    share_alike,
    variances,
)
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import EQUAL, mixed_groups, some_unequal
from budgetalloc.errors import InputError
from budgetalloc.policies.advantages import (
    EPS,
    Baseline,
    Scale,
    Weight,
    check_maxrl,
    group_advantages,
    maxrl_unit,
    posterior_mean,
    sum_until,
)
from budgetalloc.policies.rollouts import Rollouts

_BoolArray = NDArray[np.bool_]

LARGEST = 5.0
"""The largest advantage under scale "group": twice the largest of GRPO in groups of 8. 0/1 rewards
stay below it."""
# the largest ratio to GRPO's size; following GRPO at every step would make Adam's steps uneven
_APART = 1.3
# mean advantages below 0 and above the usual that are a change of rewards, in deviations
_BELOW, _ABOVE = 0.12, 0.25
_RAREST = 0.02  # means of success beyond this, and beyond 1 minus it, are recalibrated like it
_FEW = 2.0  # rollouts that show nothing in common: they count in small steps
_DOUBT = 10.0  # weight of k = 0 in the recalibration, in units of sqrt(m (1-m)) log(m / (1-m))^2


class _Calibration(NamedTuple):
    """Posterior means m of success, and what moves them."""

    believed_R: FloatArray  # m
    spread_R: FloatArray  # m (1-m)
    logit_R: FloatArray  # log(m / (1-m))
    d_R: FloatArray
    k_R: FloatArray
    changed_R: _BoolArray  # whether the rewards of all prompts have changed
    # mean advantage of the step's other prompts in root mean squares; the usual if far above it
    lean_R: FloatArray


class _Compared(NamedTuple):
    """What is expected of each rollout, without its own reward."""

    expected_R: FloatArray  # its reward; NaN for a rollout not to train on
    deviation_R: FloatArray  # the standard deviation of its reward around that
    within_R: FloatArray  # the variance of rewards within its prompt
    grpo_R: FloatArray  # the squared advantage of GRPO in groups of 8 on its prompt
    # the chance that what success does not explain of 8 rewards is equal, and no success is graded
    same: float
    step: Sums  # of this step


@dataclass(frozen=True, eq=False)
class PosteriorBaseline:
    """What is expected of each rollout of a step, without its own reward. `rule_R` is the expected
    success by the policy's own rule instead of the posterior mean, NaN for a rollout not to train
    on; or None."""

    rollouts: Rollouts
    rule_R: FloatArray | None = None

    @cached_property
    def line(self) -> Line:
        """The expected reward of each rollout as a linear function of its success."""
        rollouts = self.rollouts
        if rollouts.reward_range is not None:  # success is the reward, mapped from this range
            low, high = rollouts.reward_range
            low_R = np.full(len(rollouts), low)
            return Line(low_R, high - low_R, np.zeros(len(rollouts)))
        success_R, rewards_R = rollouts.success_R, rollouts.rewards_R
        return reward_line(success_R, rewards_R, rollouts.group_R, rollouts.earlier, rollouts.jump)

    @cached_property
    def mean_R(self) -> FloatArray:
        """The expected success of each rollout: by the policy's own rule, else the posterior mean,
        recalibrated."""
        if self.rule_R is not None:
            return self.rule_R
        own = self.calibration
        moved_R = own.believed_R + (own.d_R + own.k_R * own.logit_R) * own.spread_R
        still_R = self.still_R
        return np.where(np.isnan(still_R), np.clip(moved_R, 0.0, 1.0), still_R)

    @cached_property
    def still_R(self) -> FloatArray:
        """The success of prompts whose graded successes have stopped to change, NaN for others.

        It is what is expected of them. Else the advantages of a policy that has collapsed would be
        the errors of its beliefs, made as large as GRPO's advantages, which are 0 there.
        """
        constant_R = self.rollouts.constant_R
        if constant_R is None or self.rule_R is not None:
            return np.full(len(self.rollouts), np.nan)
        graded_R = np.abs(constant_R - 0.5) < 0.5 - EQUAL  # not all failed, nor all succeeded
        return np.where(graded_R, constant_R, np.nan)

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
        rollouts = self.rollouts
        success_R, rewards_R = rollouts.success_R, rollouts.rewards_R
        believed_R = posterior_mean(
            success_R, rollouts.group_R, rollouts.baseline_R, rollouts.round_R
        )
        m_R = np.clip(believed_R, _RAREST, 1 - _RAREST)
        spread_R, logit_R = m_R * (1 - m_R), np.log(m_R / (1 - m_R))
        known_R = ~(np.isnan(success_R) | np.isnan(rewards_R))
        # as in advantages, which are divided by the deviation
        weight_R = known_R / np.sqrt(spread_R)
        known = self.of_others(known_R)
        above_R = np.where(known_R, rewards_R - self.line.at(believed_R), 0.0)
        above_R = np.nan_to_num(weight_R * above_R)
        square_R = self.of_others(above_R**2) * known
        lean_R = self.of_others(above_R) / np.sqrt(np.maximum(square_R, 1e-24))
        earlier = rollouts.earlier
        usual = earlier.lean / earlier.n if earlier.n > 0 else 0.0
        below_R, beyond_R = self._changed(lean_R, known, usual)
        changed_R = below_R | beyond_R
        d_R = k_R = np.zeros(len(m_R))
        if changed_R.any():
            away_R = weight_R * np.where(known_R, success_R - believed_R, 0.0)
            level, cross, slope = (
                self.of_others(weight_R * spread_R * logit_R**power) for power in (0, 1, 2)
            )
            level, slope = level + _FEW / 2, slope + _DOUBT  # sqrt(m (1-m)) is at most 1/2
            f_R, g_R = self.of_others(away_R), self.of_others(away_R * logit_R)
            k_R = np.clip((level * g_R - cross * f_R) / (level * slope - cross**2), -1.0, 1.0)
            d_R = np.clip((f_R - k_R * cross) / level, -1.0, 1.0)
        return _Calibration(
            believed_R,
            spread_R,
            logit_R,
            changed_R * d_R,
            changed_R * k_R,
            changed_R,
            np.where(beyond_R, max(usual, 0.0), lean_R),
        )

    def _changed(
        self, lean_R: FloatArray, n_R: FloatArray, usual: float
    ) -> tuple[_BoolArray, _BoolArray]:
        """Whether the rewards of all prompts are below what was believed, and above it by more than
        in earlier steps, whose mean advantage without those that exceeded it at once is `usual`.

        A model that learns quickly exceeds beliefs more and more, and these advantages help it. It
        neither falls short of them nor exceeds them at once.
        """
        error_R = 1 / np.sqrt(np.maximum(n_R, 1.0))
        above_R = lean_R > max(usual, 0.0) + np.maximum(_ABOVE, 2 * error_R)
        # in small steps, those before count too if they fell short
        past_R = np.minimum(3 * n_R, self.rollouts.earlier.n) * (usual < 0)
        n_R = n_R + past_R
        sum_R = (n_R - past_R) * lean_R + past_R * usual
        return sum_R < -np.maximum(_BELOW * n_R, 2 * np.sqrt(n_R)), above_R

    def shared(self, weight_R: FloatArray) -> FloatArray:
        """For each rollout, how far the rewards of the step's other prompts are above their
        expectation on average.

        The expectation is by the line and the calibration of the rollout, which are independent of
        its own reward, as are the weights. It is 0 while rewards have not changed.
        """
        line, own = self.line, self.calibration
        if not own.changed_R.any():
            return np.zeros(len(self.rollouts))
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
        above_R /= np.maximum(n_R, 1e-9)
        rows_R = self.of_others(weight_R > 0)
        return np.asarray(own.changed_R * above_R * rows_R / (rows_R + _FEW))

    @cached_property
    def compared(self) -> _Compared:
        """What is expected of each rollout, without its own reward."""
        rollouts, line = self.rollouts, self.line
        success_R, rewards_R, group_R = rollouts.success_R, rollouts.rewards_R, rollouts.group_R
        prior = rollouts.prior
        known = Known.of(success_R, group_R, rollouts.belief_R, (prior.alpha_P, prior.beta_P))
        within, pairs = deviations(success_R, known)
        step = Sums.of(success_R, rewards_R)
        alike = step.n * share_alike(rewards_R - rollouts.jump * success_R)
        step = replace(step, within=within, pairs=pairs, alike=alike)
        if self.rule_R is None and step.n > 0:
            step = replace(step, lean=step.n * float(self.calibration.lean_R.mean()))
        sums = rollouts.earlier.plus(step)

        trained_R = ~(np.isnan(rewards_R) | np.isnan(self.mean_R))
        mean_R = np.where(trained_R, np.nan_to_num(self.mean_R), 0.5)
        scored_R = ~np.isnan(success_R)
        mass_R = rollouts.baseline_R.mass + np.bincount(group_R, scored_R)[group_R] - scored_R
        within_R, error_R = variances(mean_R, mass_R, known, sums)
        expected_R = line.at(mean_R)
        nothing_R = np.isnan(expected_R)  # a first step with one prompt has no other rollouts
        expected_R = np.where(nothing_R, np.nan_to_num(rewards_R), expected_R)

        alike = float(sums.alike / sums.n) if sums.n > 0 else 1.0
        graded = float(sums.graded / sums.n) if sums.n > 0 else 1.0
        m_R = np.clip(mean_R, 1e-6, 1 - 1e-6)
        grpo_R = grpo_square(Beta(mass_R * m_R, mass_R * (1 - m_R)), known, graded, alike)
        return _Compared(
            expected_R=np.where(trained_R, expected_R, np.nan),
            deviation_R=np.where(nothing_R, 1.0, line.deviation(within_R + error_R) + EPS),
            within_R=np.where(trained_R & ~nothing_R, line.deviation(within_R) ** 2, 0.0),
            grpo_R=np.where(trained_R & np.isnan(self.still_R), grpo_R, 0.0),
            same=alike * (1 - graded) ** GROUP,
            step=step,
        )


def by_beliefs(rollouts: Rollouts) -> PosteriorBaseline:
    """What is expected of each rollout by the beliefs. It is kept with the record, because
    advantages, the fallback and metrics ask for the same."""
    own: PosteriorBaseline = vars(rollouts).setdefault("by_beliefs", PosteriorBaseline(rollouts))
    return own


def sums_of(rollouts: Rollouts) -> Sums:
    """Sums over the step's rewards and successes, for later steps; rollouts with a hint are left
    out."""
    if rollouts.hinted_R.any():
        rollouts = replace(rollouts, success_R=rollouts.learned_R)
    if rollouts.expected_R is None:
        return by_beliefs(rollouts).compared.step
    return PosteriorBaseline(rollouts, rollouts.expected_R).compared.step


@dataclass(frozen=True, eq=False)
class Advantages:
    """The advantages of a step."""

    values_R: FloatArray  # 0 for a rollout not to train on
    baseline_R: FloatArray  # in units of the rewards; NaN for a rollout not to train on


def batch_advantages(
    rollouts: Rollouts, baseline: Baseline, scale: Scale, weight: Weight = "rollout"
) -> Advantages:
    """The advantages of a step, in the units of `group_advantages`, with rewards on any scale; all
    0 if all rewards are equal.

    Under "posterior" and "policy" the expected success becomes an expected reward
    (`PosteriorBaseline.line`). With scale "group" the difference is divided by its expected
    standard deviation, sqrt(m (1-m)) for 0/1 successes and learned for graded ones; with "maxrl" by
    that times m / (1 - (1-m)^8) / sqrt(m (1-m)), with m the expected success. Two things hold
    for "posterior", whatever the rewards did before:

    - From the step on in which the rewards of all prompts change, the mean advantage is about 0
      (`calibration` and `shared` of `PosteriorBaseline`).
    - Under the scales "group", "maxrl", "batch" and "none", the root mean square is within 1.3
      times what GRPO in groups of 8 is expected to have on the same prompts, and no advantage is
      above five times the deviation.

    A row whose expected success is NaN is left out of all statistics and gets 0.

    Raises:
        InputError: as `group_advantages`; "policy" for a policy without a rule of its own.
    """
    rewards_R, lengths_R = rollouts.rewards_R, rollouts.lengths_R
    groups_R = rollouts.group_R.tolist()
    rows = len(rewards_R)
    if baseline not in ("posterior", "policy"):
        away_R = group_advantages(rewards_R, groups_R, baseline, "none")
        values_R = np.zeros(rows)
        if scale == "maxrl" and baseline == "group":
            values_R = away_R / _maxrl_units(rollouts)
        elif some_unequal(rewards_R):
            values_R = group_advantages(
                rewards_R, groups_R, baseline, scale, weight, lengths_R=lengths_R
            )
        if rollouts.resolution and baseline != "batch":  # which does not compare within groups
            about = rollouts.group_R, len(rollouts.counts_G), rollouts.resolution
            values_R = np.where(mixed_groups(rewards_R, *about)[rollouts.group_R], values_R, 0.0)
        return Advantages(values_R, rewards_R - away_R)
    if baseline == "policy" and rollouts.expected_R is None:
        raise InputError(
            "baseline='policy' is the policy's own rule (`Policy.expect`), and this policy has "
            "none. Use another baseline, such as 'posterior'.",
            argument="baseline",
        )
    check_maxrl(baseline, scale)
    own = by_beliefs(rollouts)
    if baseline == "policy":
        own = PosteriorBaseline(rollouts, rollouts.expected_R)
    expected_R, deviation_R = own.compared.expected_R, own.compared.deviation_R
    trained_R = ~np.isnan(expected_R)
    weight_R = trained_R.astype(np.float64)
    if weight == "prompt":  # as `group_advantages`, without the rows that are left out
        trained_G = np.bincount(rollouts.group_R, trained_R, len(rollouts.counts_G))
        prompts = max(int(np.count_nonzero(trained_G)), 1)
        weight_R *= rows / prompts / np.maximum(trained_G, 1)[rollouts.group_R]
    divided = scale in ("group", "maxrl")
    share_R: FloatArray | float = 1.0  # of the deviation, by which advantages are divided
    if scale == "maxrl":
        m_R = np.nan_to_num(own.mean_R, nan=0.5)
        share_R = maxrl_unit(m_R) / np.sqrt(bernoulli_variance(m_R))
    if own.rule_R is None:
        # the deviation, but for a factor
        like_R = np.sqrt(own.calibration.spread_R) * share_R if divided else 1.0
        expected_R = expected_R + own.shared(weight_R / like_R)
    fresh_R = np.where(trained_R, rewards_R, np.nan)
    if not some_unequal(fresh_R):
        return Advantages(np.zeros(rows), expected_R)
    if own.rule_R is not None and scale != "group":
        based_R = np.nan_to_num(expected_R)
        values_R = group_advantages(fresh_R, groups_R, based_R, scale, weight, lengths_R=lengths_R)
        return Advantages(values_R, expected_R)

    unit_R = deviation_R * share_R if divided else np.ones(rows)
    away_R, times_R = np.where(trained_R, rewards_R - expected_R, 0.0), weight_R / unit_R
    if divided or scale in ("batch", "none"):
        times_R = times_R / _excess(own, away_R, times_R, scale)
    most_R = LARGEST * (deviation_R / unit_R)
    values_R = np.clip(away_R * times_R, -most_R, most_R)
    if not divided:
        based_R = np.nan_to_num(fresh_R - values_R)
        values_R = group_advantages(fresh_R, groups_R, based_R, scale, lengths_R=lengths_R)
    return Advantages(values_R, expected_R)


def _maxrl_units(rollouts: Rollouts) -> FloatArray:
    """The mean success of each rollout's group, in units of the reward: what MaxRL divides by. At
    least that of one success, so that other parts of the reward count where all fail; 1 while
    success is not known."""
    scored_R, group_R = ~np.isnan(rollouts.success_R), rollouts.group_R
    n_G = np.maximum(np.bincount(group_R, scored_R), 1)
    mean_G = np.bincount(group_R, np.nan_to_num(rollouts.success_R)) / n_G
    units_R = abs(rollouts.jump) * np.maximum(mean_G, 1 / n_G)[group_R]
    return np.where(scored_R & (units_R > 0), units_R, 1.0)


def _excess(
    own: PosteriorBaseline, away_R: FloatArray, times_R: FloatArray, scale: Scale
) -> FloatArray:
    """What to divide by: the part of the ratio between the root mean square of advantages and
    GRPO's that lies outside 1 / 1.3 to 1.3.

    It is that of each rollout's other prompts. "group" and "maxrl" have one ratio for the step: a
    rare success would otherwise have a larger factor than the failures.
    """
    rollouts, compared, trained_R = own.rollouts, own.compared, times_R > 0
    divided = scale in ("group", "maxrl")
    total = np.sum if divided else own.of_others
    n, size = np.maximum(total(trained_R), 1.0), total(away_R**2)
    square = total((away_R * times_R) ** 2)
    if divided:
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
        everything = total(rewards_R**2) - total(rewards_R) ** 2 / n
        within = total(compared.within_R)
        share = within / np.maximum(total(trained_R * compared.deviation_R**2), 1e-300)
        grpo = (GROUP - 1) / GROUP * np.minimum(np.minimum(share * size, within), everything)
    least = 1e-5 * grpo + 1e-12
    ratio = np.sqrt((square + least) / (grpo + least))
    return np.asarray(ratio / np.clip(ratio, 1 / _APART, _APART))
