"""The record of a training step: its rollouts, their rewards, and the beliefs before the step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array
from budgetalloc.policies import Step
from budgetalloc.policies.batch_advantages import Rollouts
from budgetalloc.training.success_measure import Measure

__all__ = ["Batch", "BoolArray", "Ended", "Round", "check_rows"]

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Round:
    """Rollouts of all processes that were observed together, all of the round `number`. Fields are as in `Batch`."""

    ids_R: list[Id]
    rewards_R: FloatArray
    scores_RF: FloatArray
    success_R: FloatArray
    lengths_R: IntArray
    hinted: bool = False
    prompt_lengths_R: IntArray | None = None
    number: int = 0
    reported: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Batch:
    """All rollouts of one step, with the beliefs before the policy learns from them. It is read-only.

    Args:
        ids_R: Prompt of each rollout.
        group_R: Number of its group, by the order in which the prompts first appear.
        rewards_R: Its total reward; NaN if no reward function scored it.
        scores_RF: Its reward by reward function, shape (R, F); NaN where a function returned None.
        success_R: Its success in [0, 1]; NaN if it was not scored.
        lengths_R: Its length in tokens.
        round_R: The round of the step in which it was generated, from 0.
        hinted_R: Whether it was generated with a hint; beliefs do not learn from such rollouts.
        belief_R: The belief about its prompt before the step.
        prior: The prior that `belief_R` contains, shape (R,).
        baseline_R: The belief from which the baseline is computed (`Step.baseline_belief`).
        expected_R: Its expected success by the policy's own rule (`Step.expected_success`), or None.
        measure: Maps rewards to success.
        earlier: Rewards and success of earlier steps.
        step: The trainer's step.
        policy_step: Steps that the policy ended before this one.
        uniform: Whether the step had uniform groups, because the policy had fallen back (`rails`).
        prompt_lengths_R: The length of its prompt in tokens, if costs are learned.
        reported: What it reported of each name of `cost=`, NaN where it did not (`training.reported_costs`).
        costs_R: Its cost with its share of the prompt's, if costs are learned and have a fixed unit. An expected cost
            stands for one that was not reported.

    >>> import budgetalloc as ba
    >>> from budgetalloc.training.success import Rule
    >>> rewards_R, success_R = np.array([2.0, 0.0, np.nan]), np.array([1.0, 0.0, np.nan])
    >>> made = Round(["a", "b", "a"], rewards_R, rewards_R[:, None], success_R, np.array([4, 4, 2]))
    >>> step = ba.uniform().begin(["a", "b"], ba.Budget(rollouts=4))
    >>> batch = Batch.of([made], step, Measure(Rule(), (0.0, 2.0), ("reward",), slope=1.0), Sums(), trainer_step=7)
    >>> batch.group_R, batch.counts_R, batch.belief_R.mean, batch.rollouts().line.at(0.5)
    (array([0, 1, 0]), array([2, 1, 2]), array([0.5, 0.5, 0.5]), array([1., 1., 1.]))
    """

    ids_R: list[Id]
    group_R: IntArray
    rewards_R: FloatArray
    scores_RF: FloatArray
    success_R: FloatArray
    lengths_R: IntArray
    round_R: IntArray
    hinted_R: BoolArray
    belief_R: Beta
    prior: Beta
    baseline_R: Beta
    expected_R: FloatArray | None
    measure: Measure
    earlier: Sums
    step: int
    policy_step: int
    uniform: bool = False
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

    @cached_property
    def _rollouts(self) -> Rollouts:
        return Rollouts(
            ids_R=self.ids_R,
            group_R=self.group_R,
            rewards_R=self.rewards_R,
            success_R=self.success_R,
            belief_R=self.belief_R,
            baseline_R=self.baseline_R,
            prior=(self.prior.alpha_P, self.prior.beta_P),
            earlier=self.earlier,
            reward_range=self.measure.reward_range,
            jump=self.measure.jump,
            expected_R=self.expected_R,
            lengths_R=self.lengths_R,
            round_R=self.round_R,
        )

    def rollouts(self, rewards_R: FloatArray | None = None) -> Rollouts:
        """The input of `batch_advantages`.

        Args:
            rewards_R: Total rewards that replace the batch's own, if stored correct responses were substituted. A
                rollout with a new reward is a success.
        """
        if rewards_R is None or rewards_R is self.rewards_R:
            return self._rollouts
        success_R = np.where(np.isnan(rewards_R) | (rewards_R == self.rewards_R), self.success_R, 1.0)
        return replace(self._rollouts, rewards_R=rewards_R, success_R=success_R)

    def sums(self) -> Sums:
        """Sums over the step's rewards and successes, for later steps; rollouts with a hint are left out."""
        rollouts = self.rollouts()
        return (replace(rollouts, success_R=self.learned_R) if self.hinted_R.any() else rollouts).sums()

    @classmethod
    def of(cls, rounds: Sequence[Round], step: Step, measure: Measure, earlier: Sums, trainer_step: int) -> "Batch":
        """The rounds of an unfinished step, at least one, as a batch; the other arguments are as in the class."""
        ids_R = [name for each in rounds for name in each.ids_R]
        success_R = np.concatenate([each.success_R for each in rounds])
        sizes = [len(each.ids_R) for each in rounds]
        prompts = [each.prompt_lengths_R for each in rounds if each.prompt_lengths_R is not None]
        return cls(
            ids_R=ids_R,
            group_R=factorize(ids_R)[1],
            rewards_R=np.concatenate([each.rewards_R for each in rounds]),
            scores_RF=np.concatenate([each.scores_RF for each in rounds]),
            success_R=success_R,
            lengths_R=np.concatenate([each.lengths_R for each in rounds]),
            round_R=np.repeat([each.number for each in rounds], sizes),
            hinted_R=np.repeat([each.hinted for each in rounds], sizes),
            belief_R=step.belief_of(ids_R),
            prior=Beta(*step.policy.estimator.prior_of(ids_R)),
            baseline_R=step.baseline_belief(ids_R, success_R, earlier),
            expected_R=step.expected_success(ids_R, success_R),
            measure=measure,
            earlier=earlier,
            step=trainer_step,
            policy_step=step.policy.estimator.step,
            uniform=step.replaced,
            prompt_lengths_R=np.concatenate(prompts) if prompts else None,
            reported={name: np.concatenate([each.reported[name] for each in rounds]) for name in rounds[0].reported},
        )


@dataclass(frozen=True, eq=False)
class Ended:
    """The result of a finished step.

    Args:
        batch: The record of the step; None if no rollout was observed.
        advantages_R: The advantages of all its rollouts in the order observed, shape (R,).
        kept_R: The indices of the rollouts to train on: all, unless the policy generates more than it trains on.
        metrics: Metrics by name.
    """

    batch: Batch | None
    advantages_R: FloatArray
    kept_R: IntArray
    metrics: dict[str, float]


def check_rows(
    ids_R: Sequence[Id],
    scores_RF: ArrayLike,
    lengths_R: ArrayLike,
    names: Sequence[str],
) -> tuple[FloatArray, IntArray]:
    """The rewards, shape (R, F), and lengths, shape (R,), of rollouts.

    Args:
        ids_R: The prompt of each rollout.
        scores_RF: Its reward by each of `names`, shape (R, F), or (R,) if there is one reward.
        lengths_R: Its length in tokens.
        names: The names of the rewards.

    Raises:
        InputError: the numbers of rows differ, or a value is not a number.
    """
    rows = len(ids_R)
    scores = check_array("scores_RF", scores_RF, f"a number for each rollout and each of {list(names)}")
    lengths = check_array("lengths_R", lengths_R, "a number of tokens for each rollout").astype(np.int64)
    if scores.size != rows * len(names) or lengths.shape != (rows,):
        raise InputError(
            f"scores_RF has shape {scores.shape} and lengths_R {lengths.shape} for {rows} ids and the rewards "
            f"{list(names)}: give a row for each rollout."
        )
    return scores.reshape(rows, len(names)), lengths
