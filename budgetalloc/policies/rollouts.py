"""The record of a training step: its rollouts, their rewards, the beliefs before the step, and what
these expect of each rollout without its own reward: its success, its reward and the standard
deviation of that."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.expected_reward import (
    EPS,
    GROUP,
    Known,
    Line,
    Offset,
    Sums,
    deviations,
    grpo_square,
    posterior_mean,
    reward_line,
    share_alike,
    sum_until,
    variances,
)
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import Beta, FloatArray, unchecked
from budgetalloc.beliefs.rewards import EQUAL, BoolArray
from budgetalloc.budget import IntArray

# mean advantages below 0 and above the usual that are a change of rewards, in deviations
_BELOW, _ABOVE = 0.12, 0.25
_RAREST = 0.02  # means of success beyond this, and beyond 1 minus it, are recalibrated like it
_ENOUGH = 8  # rollouts with earlier residuals, from which something is learned
_FAR = 5.0  # deviations beyond which a residual is clipped
_FEW = 2.0  # rollouts that show nothing in common: they count in small steps
_DOUBT = 10.0  # weight of k = 0 in the recalibration, in units of sqrt(m (1-m)) log(m / (1-m))^2


@dataclass(frozen=True, eq=False)
class Rollouts:
    """All rollouts of one step, with the beliefs before the policy learns from them. It is
    read-only.

    Args:
        ids_R: Prompt of each rollout.
        group_R: Number of its group, in the order in which groups first appear. A group is the
            rollouts of one prompt; of one row, if the trainer's batch is unchanged.
        rewards_R: Its total reward; NaN if no reward function scored it.
        success_R: Its success in [0, 1]; NaN if it was not scored.
        belief_R: The belief about its prompt before the step.
        baseline_R: The belief from which the baseline is computed (`Step.baseline_belief`).
        prior: The prior that `belief_R` contains, shape (R,).
        lengths_R: Its length in tokens.
        round_R: The round of the step in which it was generated, from 0.
        hinted_R: Whether it was generated with a hint; beliefs do not learn from such rollouts.
        scores_RF: Its reward by reward function, shape (R, F); NaN where a function returned None.
        constant_R: The success that the last rollouts of its prompt before the step all had, NaN if
            they differed (`Estimator.constant`); or None.
        expected_R: Its expected success by the policy's own rule (`Step.expected_success`), NaN for
            a rollout not to train on; or None.
        earlier: Sums over rewards and success of earlier steps.
        residuals_R3: Number and sum of the residuals of its prompt in earlier steps, which are the
            rewards minus those of the line in success, and the last reward minus `jump` times
            success (NaN for none), shape (R, 3); None if success is the reward or nothing keeps
            them (`training.residuals`).
        reward_range: The rewards at success 0 and 1 if success is the reward mapped by this range,
            else None.
        jump: The initial estimate of the rise in reward from failure to success.
        group: The group size of the GRPO with which the size of advantages is compared.
        step: The trainer's step.
        policy_step: Steps that the policy ended before this one.
        uniform: Whether the step had uniform groups in place of the policy's.
        resolution: As in `Options`.
        prompt_lengths_R: The length of its prompt in tokens, if costs are learned.
        reported: What it reported of each name of `cost=`, NaN where it did not.
        costs_R: Its cost with its share of the prompt's, if costs are learned and have a fixed
            unit; the expected one if it reported none.
    """

    ids_R: list[Id]
    group_R: IntArray
    rewards_R: FloatArray
    success_R: FloatArray
    belief_R: Beta
    baseline_R: Beta
    prior: Beta
    lengths_R: IntArray
    round_R: IntArray
    hinted_R: NDArray[np.bool_]
    scores_RF: FloatArray
    constant_R: FloatArray | None = None
    expected_R: FloatArray | None = None
    earlier: Sums = field(default_factory=Sums)
    residuals_R3: FloatArray | None = None
    reward_range: tuple[float, float] | None = None
    jump: float = 1.0
    group: int = GROUP
    step: int = 0
    policy_step: int = 0
    uniform: bool = False
    resolution: float = 0.0
    prompt_lengths_R: IntArray | None = None
    reported: Mapping[str, FloatArray] = field(default_factory=dict)
    costs_R: FloatArray | None = None

    def __len__(self) -> int:
        """Number of rollouts."""
        return len(self.ids_R)

    @cached_property
    def counts_G(self) -> IntArray:
        """Rollouts of each group."""
        return np.bincount(self.group_R)

    @cached_property
    def first_G(self) -> IntArray:
        """The first row of each group."""
        return np.flatnonzero(np.diff(np.maximum.accumulate(self.group_R), prepend=-1))

    @property
    def counts_R(self) -> IntArray:
        """Rollouts of each rollout's group."""
        return self.counts_G[self.group_R]

    @property
    def learned_R(self) -> FloatArray:
        """`success_R`, with NaN for rollouts with a hint, from which beliefs do not learn."""
        return np.where(self.hinted_R, np.nan, self.success_R)

    @cached_property  # advantages, the fallback, metrics and later steps ask for the same
    def by_beliefs(self) -> "Expected":
        """What the beliefs expect of each rollout."""
        return Expected.of(self)

    def sum_of_others(self, x_R: ArrayLike) -> FloatArray:
        """For each rollout, the sum of x over the step's other prompts, without rounds after the
        rollout's own.

        What a baseline learns from these rollouts is independent of the rollout's own reward.
        """
        all_R = np.bincount(self.round_R, x_R).cumsum()[self.round_R]
        return np.asarray(all_R - sum_until(x_R, self.group_R, self.round_R))

    def with_rewards(self, rewards_R: FloatArray) -> "Rollouts":
        """The same rollouts with other total rewards, where stored correct responses were
        substituted. A rollout with a new reward is a success."""
        same_R = np.isnan(rewards_R) | (rewards_R == self.rewards_R)
        success_R = np.where(same_R, self.success_R, 1.0)
        return replace(self, rewards_R=rewards_R, success_R=success_R)


class Calibration(NamedTuple):
    """Posterior means m of success, and how far the step's other prompts move them.

    When the rewards of all prompts change, beliefs follow over many steps. The mean follows at
    once, to m + (d + k log(m / (1-m))) m (1-m). d and k, at most 1 in size, are one Newton step of
    Platt's calibration, a logistic regression of success on log(m / (1-m)). They are 0 while
    rewards have not changed.
    """

    believed_R: FloatArray  # m
    spread_R: FloatArray  # m (1-m)
    logit_R: FloatArray  # log(m / (1-m))
    d_R: FloatArray
    k_R: FloatArray
    changed_R: BoolArray  # whether the rewards of all prompts have changed
    # mean advantage of the step's other prompts in root mean squares; the usual if far above it
    lean_R: FloatArray

    @classmethod
    def of(cls, rollouts: Rollouts, line: Line, offset_R: FloatArray) -> "Calibration":
        """The calibration of a step, where the line plus this offset is the expected reward.

        Rewards have changed if they are below what was believed, or above it by more than in
        earlier steps. A model that learns quickly exceeds beliefs more and more, and these
        advantages help it. It neither falls short of them nor exceeds them at once.
        """
        of_others, earlier = rollouts.sum_of_others, rollouts.earlier
        success_R, rewards_R = rollouts.success_R, rollouts.rewards_R - offset_R
        known = rollouts.group_R, rollouts.baseline_R, rollouts.round_R
        believed_R = posterior_mean(success_R, *known)
        m_R = np.clip(believed_R, _RAREST, 1 - _RAREST)
        spread_R, logit_R = m_R * (1 - m_R), np.log(m_R / (1 - m_R))
        known_R = ~(np.isnan(success_R) | np.isnan(rewards_R))
        weight_R = known_R / np.sqrt(spread_R)  # as in advantages, which are divided by the root
        above_R = np.nan_to_num(weight_R * (rewards_R - line.at(believed_R)))

        n_R, square_R = of_others(known_R), of_others(above_R**2)
        lean_R = of_others(above_R) / np.sqrt(np.maximum(square_R * n_R, 1e-24))
        usual = earlier.lean / earlier.n if earlier.n > 0 else 0.0
        beyond_R = lean_R > max(usual, 0.0) + np.maximum(_ABOVE, 2 / np.sqrt(np.maximum(n_R, 1.0)))
        # in small steps, those before count too if they fell short
        past_R = np.minimum(3 * n_R, earlier.n) * (usual < 0)
        sum_R, all_R = n_R * lean_R + past_R * usual, n_R + past_R
        changed_R = beyond_R | (sum_R < -np.maximum(_BELOW * all_R, 2 * np.sqrt(all_R)))

        d_R = k_R = np.zeros(len(rollouts))
        if changed_R.any():
            away_R = np.nan_to_num(weight_R * (success_R - believed_R))
            f_R, g_R = of_others(away_R), of_others(away_R * logit_R)
            level_R, cross_R, slope_R = (
                of_others(weight_R * spread_R * logit_R**power) for power in (0, 1, 2)
            )
            level_R, slope_R = level_R + _FEW / 2, slope_R + _DOUBT  # sqrt(m (1-m)) is at most 1/2
            k_R = (level_R * g_R - cross_R * f_R) / (level_R * slope_R - cross_R**2)
            k_R = changed_R * np.clip(k_R, -1.0, 1.0)
            d_R = changed_R * np.clip((f_R - k_R * cross_R) / level_R, -1.0, 1.0)
        lean_R = np.where(beyond_R, max(usual, 0.0), lean_R)
        return cls(believed_R, spread_R, logit_R, d_R, k_R, changed_R, lean_R)


@dataclass(frozen=True, eq=False)
class Expected:
    """What is expected of each rollout of a step, without its own reward."""

    mean_R: FloatArray  # its success; NaN for a rollout not to train on
    rewards_R: FloatArray  # its reward; NaN for a rollout not to train on
    deviation_R: FloatArray  # the standard deviation of its reward around that
    within_R: FloatArray  # the variance of rewards within its prompt
    grpo_R: FloatArray  # the squared advantage of GRPO on its prompt
    # the chance that a group's residuals are equal, and no success is graded
    same: float
    line: Line  # the reward by success
    offset_R: FloatArray  # the residual that is expected of its prompt
    residual_R: FloatArray  # its reward minus that of the line at its success; NaN for none
    rest_R: FloatArray  # its reward minus `jump` times its success
    calibration: Calibration
    sums: Sums  # of this step

    @classmethod
    def of(cls, rollouts: Rollouts, rule_R: FloatArray | None = None) -> "Expected":
        """What the beliefs expect; or the policy's own rule, by the expected success `rule_R`."""
        success_R, rewards_R, group_R = rollouts.success_R, rollouts.rewards_R, rollouts.group_R
        rows, earlier, jump = len(rollouts), rollouts.earlier, rollouts.jump
        if rollouts.reward_range is not None:  # success is the reward, mapped from this range
            low, high = rollouts.reward_range
            line = Line(np.full(rows, low), np.full(rows, high - low), np.zeros(rows))
        else:
            line = reward_line(success_R, rewards_R, group_R, earlier, jump)
        rest_R = rewards_R - jump * success_R
        if (before_R3 := rollouts.residuals_R3) is None:
            residual_R = rewards_R - line.at(success_R)
            offset = Offset(np.zeros(rows), line.around_R, {})
        else:
            line, residual_R, offset = _with_offset(rollouts, line, before_R3)
            compared_R = ~np.isnan(rest_R - before_R3[:, 2])
            same_R = np.abs(rest_R - before_R3[:, 2]) < 1e-6
            offset.sums["same_residual"] = float(same_R.sum())
            offset.sums["compared"] = float(compared_R.sum())

        # its success
        own, still_R = Calibration.of(rollouts, line, offset.offset_R), np.zeros(rows, dtype=bool)
        if rule_R is not None:
            mean_R = rule_R
        else:
            moved_R = own.believed_R + (own.d_R + own.k_R * own.logit_R) * own.spread_R
            mean_R = np.clip(moved_R, 0.0, 1.0)
            if rollouts.constant_R is not None:
                # Graded successes of a prompt that have stopped to change are expected to go on.
                # Else the advantages of a policy that has collapsed would be the errors of its
                # beliefs, made as large as GRPO's advantages, which are 0 there.
                still_R = np.abs(rollouts.constant_R - 0.5) < 0.5 - EQUAL
                mean_R = np.where(still_R, rollouts.constant_R, mean_R)

        # this step and earlier ones
        prior = rollouts.prior.alpha_P, rollouts.prior.beta_P
        known = Known.of(success_R, group_R, rollouts.belief_R, prior)
        step = Sums.of(success_R, rewards_R)
        within, pairs = deviations(success_R, known)
        alike = step.n * share_alike(rest_R, rollouts.group)
        lean = step.n * float(own.lean_R.mean())
        step = replace(step, within=within, pairs=pairs, alike=alike, lean=lean, **offset.sums)
        sums = earlier.plus(step)

        # its reward, and the size of advantages
        trained_R, scored_R = ~(np.isnan(rewards_R) | np.isnan(mean_R)), ~np.isnan(success_R)
        known_R = np.where(trained_R, mean_R, 0.5)
        mass_R = rollouts.baseline_R.mass + np.bincount(group_R, scored_R)[group_R] - scored_R
        within_R, error_R = variances(known_R, mass_R, known, sums)
        expected_R = line.at(known_R) + offset.offset_R
        nothing_R = np.isnan(expected_R)  # a first step with one prompt has no other rollouts
        expected_R = np.where(nothing_R, rewards_R, expected_R)
        alike, graded = sums.chance_alike(rollouts.group), sums.graded / sums.n if sums.n else 1.0
        m_R = np.clip(known_R, 1e-6, 1 - 1e-6)
        alpha_R, beta_R = mass_R * m_R, mass_R * (1 - m_R)
        belief_R = unchecked(Beta, alpha_P=alpha_R, beta_P=beta_R, spread_P=np.ones(rows))
        grpo_R = grpo_square(belief_R, known, graded, alike, rollouts.group)
        return cls(
            mean_R=mean_R,
            rewards_R=np.where(trained_R, expected_R, np.nan),
            deviation_R=np.where(nothing_R, 1.0, line.deviation(within_R + error_R) + EPS),
            within_R=np.where(trained_R & ~nothing_R, line.deviation(within_R) ** 2, 0.0),
            grpo_R=np.where(trained_R & ~still_R, grpo_R, 0.0),
            same=alike * (1 - graded) ** rollouts.group,
            line=line,
            offset_R=offset.offset_R,
            residual_R=residual_R,
            rest_R=rest_R,
            calibration=own,
            sums=step,
        )

    def shared(self, rollouts: Rollouts, weight_R: FloatArray) -> FloatArray:
        """For each rollout, how far the rewards of the step's other prompts are above their
        expectation on average; 0 while rewards have not changed.

        The expectation is by the line and the calibration of the rollout, which are independent of
        its own reward, as are the weights.
        """
        line, own, of_others = self.line, self.calibration, rollouts.sum_of_others
        if not own.changed_R.any():
            return np.zeros(len(rollouts))
        rewards_R, spread_R = np.nan_to_num(rollouts.rewards_R - self.offset_R), own.spread_R
        columns = rewards_R, 1.0, own.believed_R, spread_R, spread_R * own.logit_R
        rewards_R, n_R, mean_R, d_R, k_R = (of_others(weight_R * x_R) for x_R in columns)
        success_R = mean_R + own.d_R * d_R + own.k_R * k_R
        above_R = np.nan_to_num(rewards_R - line.start_R * n_R - line.slope_R * success_R)
        rows_R = of_others(weight_R > 0)
        above_R /= np.maximum(n_R, 1e-9)
        return np.asarray(own.changed_R * above_R * rows_R / (rows_R + _FEW))


def _with_offset(
    rollouts: Rollouts, line: Line, before_R3: FloatArray
) -> tuple[Line, FloatArray, Offset]:
    """The line without what is known of the prompts, the residuals around it, and the offsets.

    If residuals vary more between prompts than within them, a line through all rewards would be off
    by these differences. It is then fitted to what remains of rewards without the mean residuals of
    their prompts.
    """
    success_R, rewards_R, group_R = rollouts.success_R, rollouts.rewards_R, rollouts.group_R
    (n_R, sum_R, _), earlier = before_R3.T, rollouts.earlier
    within, between = earlier.residual_variances
    if between > within:
        net_R = np.where(n_R >= 1, rewards_R - sum_R / np.maximum(n_R, 1.0), np.nan)
        if np.count_nonzero(~np.isnan(net_R + success_R)) >= _ENOUGH:
            line = reward_line(success_R, net_R, group_R, Sums(), rollouts.jump)
    residual_R = rewards_R - line.at(success_R)
    if earlier.residual_pairs >= _ENOUGH:  # an outlier counts as a large residual
        most = max(_FAR * float(np.sqrt(within + between)), abs(rollouts.jump))
        residual_R = np.clip(residual_R, -most, most)
    about = group_R, rollouts.round_R, before_R3[:, :2], line.around_R, earlier
    offset = Offset.of(residual_R, *about)
    return line._replace(around_R=offset.around_R), residual_R, offset


def sums_of(rollouts: Rollouts) -> Sums:
    """Sums over the step's rewards and successes, for later steps; rollouts with a hint are left
    out."""
    if rollouts.hinted_R.any():
        rollouts = replace(rollouts, success_R=rollouts.learned_R)
    return rollouts.by_beliefs.sums
