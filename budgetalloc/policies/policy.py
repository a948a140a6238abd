"""A policy: its beliefs, its decision rule and its state."""

import copy
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import check_ids
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.beliefs.rewards import check_outcomes
from budgetalloc.beliefs.state import check_state
from budgetalloc.budget import Budget, IntArray, check_budget
from budgetalloc.errors import (
    InputError,
    StateError,
    UnsupportedError,
    check_function,
    check_seed,
    check_type,
)
from budgetalloc.policies.bounds import Bounds
from budgetalloc.policies.decision import CostOf, Decide, Expect, Keep, Needs
from budgetalloc.policies.step import Seen, Step


@dataclass(frozen=True, eq=False)
class Policy:
    """An allocation policy: an estimator that holds the beliefs, and a rule that allocates the budget.

    Built by the functions of `budgetalloc.policies`. Equal seeds and histories give equal counts, whatever the order
    of the ids, on every process and after `load_state_dict`; only observing changes the state. A policy has beliefs and
    a memory of its own: it starts with copies of those given, also in `dataclasses.replace(policy, seed=1)`, whose
    policy goes on from what the first has learned.

    Args:
        name: The function that built it, with its settings; "seed=" in it is followed by the policy's seed.
        decide: The rule: counts, or a generator of counts for a decision in rounds (`Rounds`).
        estimator: Keeps the beliefs.
        seed: Seeds draws and ties.
        needs: What the policy asks of a trainer.
        keep: Selects the rollouts to train on, if the policy generates more than the trainer trains on.
        memory: Per-prompt columns that the policy keeps in addition to the beliefs, or None.
        expect: The baseline of `Needs(baseline="policy")`: the expected success of each rollout of a step (`Outcome`).

    >>> import budgetalloc as ba
    >>> policy = ba.knapsack(seed=0)
    >>> policy.observe(["easy"] * 8 + ["half"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.allocate(["easy", "half", "new"], ba.Budget(rollouts=24))
    array([8, 7, 9])
    """

    name: str
    decide: Decide
    estimator: BetaEstimator
    seed: int = 0
    needs: Needs = field(default_factory=Needs)
    keep: Keep | None = None
    memory: Memory | None = None
    expect: Expect | None = None

    def __post_init__(self) -> None:
        check_type("name", self.name, str, "the policy's name")
        check_function("decide", self.decide, "of a View that returns counts, or yields them in rounds")
        check_type("estimator", self.estimator, BetaEstimator, "a BetaEstimator")
        check_seed(self.seed)
        check_type("needs", self.needs, Needs, "what the policy asks of a trainer, such as ba.Needs()")
        check_type("memory", self.memory, (Memory, type(None)), "a Memory or None")
        if self.expect is not None:
            check_function("expect", self.expect, "of an Outcome that returns the expected success of each rollout")
        elif self.needs.baseline == "policy":
            raise InputError("needs.baseline='policy' is the policy's own rule: pass expect=, or another baseline.")
        if self.keep is not None:
            check_function("keep", self.keep, "(ids_R, rewards_R, rows, scores_RF) -> rows to train on")
        # So that what `dataclasses.replace` makes learns for itself, and its name tells its seed.
        object.__setattr__(self, "estimator", copy.deepcopy(self.estimator))
        object.__setattr__(self, "memory", copy.deepcopy(self.memory))
        object.__setattr__(self, "name", re.sub(r"\bseed=\d+", f"seed={self.seed}", self.name))

    def __repr__(self) -> str:
        return self.name

    def begin(
        self,
        ids_P: Iterable[Any],
        budget: Budget,
        costs_P: ArrayLike | CostOf | None = None,
        domains_P: Sequence[Hashable] | None = None,
        *,
        decide: Decide | None = None,
    ) -> "Step":
        """Opens a step: request counts, observe rewards, end.

        Args:
            ids_P: The candidate prompts, each once, shape (P,); a `Pool` where many are on offer at each step.
            budget: The budget of the step. Bounds that it does not name are the policy's.
            costs_P: Expected tokens of one rollout of each prompt, needed where the budget limits tokens. Where it
                limits rollouts only, a policy with `needs.costs` spends them where a unit of cost buys most, and a
                function (ids_P, belief_P) -> (cost of each prompt once a group, cost of one rollout) is taken too.
            domains_P: The domain of each prompt; needed where the budget has quotas.
            decide: A rule that takes the place of the policy's own in this step.

        Raises:
            InputError: no prompt, an id twice, bad costs or domains. BudgetError: the budget cannot be spent on them.
        """
        check_budget(budget)
        return Step(self, ids_P, Bounds.resolve(self.needs).filled(budget), costs_P, domains_P, decide)

    def allocate(
        self,
        ids_P: Iterable[Any],
        budget: Budget,
        costs_P: ArrayLike | CostOf | None = None,
        domains_P: Sequence[Hashable] | None = None,
    ) -> IntArray:
        """Counts for these prompts, shape (P,): the sum is `budget.rollouts` exactly. Arguments as in `begin`.

        Raises:
            UnsupportedError: the policy decides in rounds, so that no counts are known before the first rewards.
            InputError, BudgetError: as `begin`.
        """
        step = self.begin(ids_P, budget, costs_P, domains_P)
        if step.in_rounds():
            raise UnsupportedError(
                f"{self} decides in rounds, each on the rewards of the rounds before: allocate() has no counts to "
                "return. Use step = policy.begin(ids_P, budget), then while (counts_P := step.request()).any(): "
                "step.observe(ids_R, rewards_R), and step.end()."
            )
        return step.request()

    def observe(self, ids_R: Iterable[Any], rewards_R: ArrayLike, success_R: ArrayLike | None = None) -> None:
        """Updates the beliefs from one step's rollouts, one row per rollout.

        Args:
            ids_R: The prompt of each rollout, shape (R,).
            rewards_R: The reward that the trainer optimises, shape (R,): any finite number; NaN and None are no
                evidence. A group of unequal rewards is mixed.
            success_R: The success of each rollout, in [0, 1], shape (R,); the beliefs are about success. NaN and None
                are no evidence. If omitted, the rewards are used as successes and must lie in [0, 1].

        Raises:
            InputError: lengths differ, a reward is not finite, or a success lies outside [0, 1].

        >>> import budgetalloc as ba
        >>> policy = ba.adaptive()
        >>> policy.observe(["a", "a"], [0.2, 1.0], success_R=[0, 1])  # 0.2 for the format, 0.8 for the answer
        >>> policy.belief(["a"]).mean
        array([0.5])
        """
        ids = check_ids(ids_R, "ids_R")
        self.learn([(ids, *check_outcomes(rewards_R, success_R, len(ids)))])

    def learn(self, rounds: Sequence[Seen]) -> None:
        """Updates memory and beliefs from one step's checked rewards and successes, round by round, and ends the step.

        The memory is updated first: its update rule belongs to a method and may raise, which leaves the memory
        unchanged.
        """
        if self.memory is not None:
            for ids_R, rewards_R, success_R in rounds:
                self.memory.observe(ids_R, rewards_R, success_R)
            self.memory.tick()
        for ids_R, _, success_R in rounds:
            self.estimator.observe(ids_R, success_R)
        self.estimator.tick()

    def rescale(self, scale: float, shift: float) -> None:
        """Changes beliefs and memory as if each success u had been scale * u + shift; see `BetaEstimator.rescale`."""
        self.estimator.rescale(scale, shift)
        if self.memory is not None:
            self.memory.rescale(scale, shift)

    def belief(self, ids_P: Iterable[Any]) -> Beta:
        """The current belief about these prompts; ids may repeat, so that `belief(ids_R)` has one entry per rollout."""
        return self.estimator.belief(ids_P)

    def cold(self, ids_P: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of these prompts were never seen, shape (P,)."""
        return self.estimator.cold(ids_P)

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, and the seed, without the settings."""
        memory = {} if self.memory is None else self.memory.state_dict()
        return {"seed": self.seed, **self.estimator.state_dict(), **memory}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()` to the bit. Raises `StateError`, and changes nothing, if it does not fit."""
        check_state(state)
        if not _same_seed(state.get("seed"), self.seed):
            raise StateError(
                f"The state was saved with seed={state.get('seed')!r}, this policy has seed={self.seed!r}: its draws "
                f"would differ. Build the policy with seed={state.get('seed')!r}."
            )
        before = self.estimator.state_dict()
        try:
            self.estimator.load_state_dict({key: value for key, value in state.items() if key != "seed"})
            if self.memory is not None:
                memory = copy.copy(self.memory)  # loading replaces its columns and changes none of them
                memory.load_state_dict(state)
                _check_together(memory, self.estimator)
                self.memory.load_state_dict(state)
        except BaseException:
            self.estimator.load_state_dict(before)
            raise


def _check_together(memory: Memory, estimator: BetaEstimator) -> None:
    """Raises `StateError` unless a memory and the beliefs can belong to the same run.

    A memory may start later than the beliefs, which then include prompts of an earlier run that the memory lacks.
    """
    remembered, believed = set(memory.ids()), set(estimator.ids())
    if (
        memory.step > estimator.step
        or remembered - believed
        or (memory.step == estimator.step and believed - remembered)
    ):
        foreign, lost = len(remembered - believed), len(believed - remembered)
        raise StateError(
            f"The state's memory is of step {memory.step}, its beliefs of step {estimator.step}; {foreign} prompts are "
            f"in the memory alone and {lost} in the beliefs alone: it is damaged. Resume from another checkpoint."
        )


def _same_seed(saved: Any, seed: int) -> bool:
    """Whether a saved seed, of any type, equals this seed."""
    return isinstance(saved, (int, np.integer)) and not isinstance(saved, bool) and int(saved) == seed
