"""A step of a session that has begun and not ended, and what was observed in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array
from budgetalloc.policies import Step
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.costs import Costs
from budgetalloc.training.success_measure import Measure

__all__ = ["OpenStep", "Round", "check_rows", "record"]


@dataclass(frozen=True, eq=False)
class Round:
    """Rollouts of all processes that were observed together, all of the round `number`. Fields are
    as in `Rollouts`."""

    ids_R: list[Id]
    rewards_R: FloatArray
    scores_RF: FloatArray
    success_R: FloatArray
    lengths_R: IntArray
    hinted: bool = False
    prompt_lengths_R: IntArray | None = None
    number: int = 0
    reported: Mapping[str, FloatArray] = field(default_factory=dict)


def record(
    rounds: Sequence[Round], step: Step, measure: Measure, earlier: Sums, trainer_step: int
) -> Rollouts:
    """The rounds of an unfinished step, at least one, as its record.

    Args:
        rounds: What was observed.
        step: The policy's step.
        measure: Mapped its rewards to success.
        earlier: Sums over rewards and success of earlier steps.
        trainer_step: The trainer's step.

    >>> import budgetalloc as ba
    >>> from budgetalloc.training.success import Rule
    >>> rewards_R, success_R = np.array([2.0, 0.0, np.nan]), np.array([1.0, 0.0, np.nan])
    >>> made = Round(["a", "b", "a"], rewards_R, rewards_R[:, None], success_R, np.array([4, 4, 2]))
    >>> step = ba.uniform().begin(["a", "b"], ba.Budget(rollouts=4))
    >>> rollouts = record([made], step, Measure(Rule(), (0.0, 2.0), ("reward",), slope=1.0), Sums(), trainer_step=7)
    >>> rollouts.group_R, rollouts.counts_R, rollouts.belief_R.mean
    (array([0, 1, 0]), array([2, 1, 2]), array([0.5, 0.5, 0.5]))
    """
    ids_R = [name for each in rounds for name in each.ids_R]
    success_R = np.concatenate([each.success_R for each in rounds])
    sizes = [len(each.ids_R) for each in rounds]
    prompts = [each.prompt_lengths_R for each in rounds if each.prompt_lengths_R is not None]
    return Rollouts(
        ids_R=ids_R,
        group_R=factorize(ids_R)[1],
        rewards_R=np.concatenate([each.rewards_R for each in rounds]),
        success_R=success_R,
        belief_R=step.belief_of(ids_R),
        baseline_R=step.baseline_belief(ids_R, success_R, earlier),
        prior=Beta(*step.policy.estimator.prior_of(ids_R)),
        lengths_R=np.concatenate([each.lengths_R for each in rounds]),
        round_R=np.repeat([each.number for each in rounds], sizes),
        hinted_R=np.repeat([each.hinted for each in rounds], sizes),
        scores_RF=np.concatenate([each.scores_RF for each in rounds]),
        expected_R=step.expected_success(ids_R, success_R),
        earlier=earlier,
        reward_range=measure.reward_range,
        jump=measure.jump,
        step=trainer_step,
        policy_step=step.policy.estimator.step,
        uniform=step.replaced,
        prompt_lengths_R=np.concatenate(prompts) if prompts else None,
        reported={
            name: np.concatenate([each.reported[name] for each in rounds])
            for name in rounds[0].reported
        },
    )


@dataclass(eq=False)
class OpenStep:
    """A step of a session that has begun and not ended.

    Args:
        step: The policy's step.
        rollouts: The rollouts that the trainer trains on.
        rounds: What was observed.
        measure: Maps its rewards to success; None before the first rollouts.
        batch: Its record, if it is up to date.
        wanted: The rollouts of the last request, until some are observed.
    """

    step: Step
    rollouts: int
    rounds: list[Round] = field(default_factory=list)
    measure: Measure | None = None
    batch: Rollouts | None = None
    wanted: int = 0

    def add(self, made: Round, measure: Measure) -> None:
        """Adds observed rollouts."""
        self.rounds.append(made)
        self.measure, self.batch, self.wanted = measure, None, 0

    def record(self, trainer_step: int, earlier: Sums, costs: Costs) -> Rollouts:
        """The record of what was observed; raises `InputError` if there is nothing."""
        if self.batch is None:
            batch = record(self.rounds, self.step, self.used_measure(), earlier, trainer_step)
            self.batch = replace(batch, costs_R=costs.paid(batch))
        return self.batch

    def used_measure(self) -> Measure:
        """What mapped the rewards to success; raises `InputError` before the first rollouts."""
        if self.measure is None:
            raise InputError(
                "end() before observe(): the step has no rollouts. Observe some, or begin another "
                "step."
            )
        return self.measure

    def check_observed(self) -> None:
        """Raises `InputError` before a request if no rollout of the last one was observed."""
        if self.wanted:
            raise InputError(
                f"request() before observe(): first observe the {self.wanted} rollouts of the last "
                "request; if all "
                "failed, observe([], [], [])."
            )

    def check_complete(self) -> None:
        """Raises `InputError` at the end if the policy wants more rollouts."""
        if self.step.unfinished or self.wanted:
            raise InputError(
                f"end(): {self.step.policy} wants more rollouts. Generate and observe what "
                "request() returns, until it "
                "returns nothing; or begin another step, which drops this one."
            )

    @property
    def failed(self) -> bool:
        """Whether rollouts were observed, and all of them failed."""
        return self.measure is not None and not any(made.ids_R for made in self.rounds)


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
    scores = check_array(
        "scores_RF", scores_RF, f"a number for each rollout and each of {list(names)}"
    )
    lengths = check_array("lengths_R", lengths_R, "a number of tokens for each rollout").astype(
        np.int64
    )
    if scores.size != rows * len(names) or lengths.shape != (rows,):
        raise InputError(
            f"scores_RF has shape {scores.shape} and lengths_R {lengths.shape} for {rows} ids and "
            "the rewards "
            f"{list(names)}: give a row for each rollout."
        )
    return scores.reshape(rows, len(names)), lengths
