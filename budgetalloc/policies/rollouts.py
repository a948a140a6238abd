"""The record of a training step: its rollouts, their rewards, and the beliefs before the step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.expected_reward import Sums, sum_until
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.policies.expectation import Expected


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
        reward_range: The rewards at success 0 and 1 if success is the reward mapped by this range,
            else None.
        jump: The initial estimate of the rise in reward from failure to success.
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
    reward_range: tuple[float, float] | None = None
    jump: float = 1.0
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

    @property
    def counts_G(self) -> IntArray:
        """Rollouts of each group."""
        return np.bincount(self.group_R)

    @property
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
    def by_beliefs(self) -> Expected:
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
