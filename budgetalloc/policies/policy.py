"""A policy (its beliefs, its rule and its state), and one training step of it."""

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.estimator import Estimator
from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.ids import check_ids, factorize
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.beliefs.rewards import check_outcomes
from budgetalloc.beliefs.state import check_state, loaded
from budgetalloc.beliefs.tracking import TrackingEstimator
from budgetalloc.budget import Budget, IntArray, check_budget
from budgetalloc.errors import (
    InputError,
    StateError,
    UnsupportedError,
    check_function,
    check_integer,
    check_seed,
    check_type,
)
from budgetalloc.policies.interface import (
    Bounds,
    CostOf,
    Decide,
    Expect,
    Keep,
    Needs,
)
from budgetalloc.policies.step import Outcomes, Step, joined

_RULE = "of a View that returns counts, or yields them in rounds"


@dataclass(frozen=True, eq=False)
class Policy:
    """An allocation policy: an estimator that holds the beliefs, and a rule that allocates the
    budget.

    Equal seeds and histories give equal counts, in any order of the ids, on every process and after
    `load_state_dict`. Only observing changes the state. A policy copies its estimator and memory:
    `dataclasses.replace(policy, seed=1)` starts from what the first policy learned.

    Args:
        name: The function that built it, with its settings. A "seed=" in it is set to the policy's
            seed.
        decide: The rule: counts, or a generator of counts for a decision in rounds (`Rounds`).
        estimator: Keeps the beliefs.
        seed: Seeds draws and ties.
        needs: What the policy asks of a trainer.
        keep: Selects the rollouts to train on, if the policy generates more.
        memory: Per-prompt columns in addition to the beliefs, or None.
        expect: The baseline of `Needs(baseline="policy")`: the expected success of each rollout of
            a step.
        featured: The policy whose rule, memory and scale `with_features` puts in place of this
            one's, if any. With a `decide` of yours, pass None.
        plan: The rollouts of each step, if they vary over the run (`contrib.pacing`); after the
            plan those of the budget hold.

    >>> import budgetalloc as ba
    >>> policy = ba.knapsack(seed=0)
    >>> policy.observe(["easy"] * 8 + ["half"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.allocate(["easy", "half", "new"], ba.Budget(rollouts=24))
    array([8, 7, 9])
    """

    name: str
    decide: Decide
    estimator: Estimator
    seed: int = 0
    needs: Needs = field(default_factory=Needs)
    keep: Keep | None = None
    memory: Memory | None = None
    expect: Expect | None = None
    featured: "Policy | None" = None
    plan: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_type("name", self.name, str, "the policy's name")
        check_function("decide", self.decide, _RULE)
        check_type("estimator", self.estimator, Estimator, "an estimator: ba.BetaEstimator()")
        check_seed(self.seed)
        check_type("needs", self.needs, Needs, "what it asks of a trainer, such as ba.Needs()")
        check_type("memory", self.memory, (Memory, type(None)), "a Memory or None")
        check_type("featured", self.featured, (Policy, type(None)), "a policy or None")
        for name, what in (
            ("expect", "(view, seen) -> the expected success of each rollout"),
            ("keep", "(ids_R, rewards_R, rows, scores_RF, success_R) -> rows to train on"),
        ):
            if getattr(self, name) is not None:
                check_function(name, getattr(self, name), what)
        if self.expect is None and self.needs.baseline == "policy":
            raise InputError(
                "needs.baseline='policy' is the policy's own rule: pass expect=, or another "
                "baseline."
            )
        for own in ("estimator", "memory"):  # what another policy learns stays there
            if (given := getattr(self, own)) is not None:
                object.__setattr__(self, own, loaded(given, given.state_dict()))
        if is_dataclass(self.keep) and hasattr(self.keep, "seed"):
            object.__setattr__(self, "keep", replace(self.keep, seed=self.seed))
        object.__setattr__(self, "name", re.sub(r"\bseed=\d+", f"seed={self.seed}", self.name))

    def __repr__(self) -> str:
        return self.name

    def with_features(self, features: Features) -> "Policy":
        """This policy with a `TrackingEstimator` of these features, by which prompts share what is
        learned. Raises `InputError` if it has features or has learned already.

        >>> import budgetalloc as ba
        >>> ba.knapsack().with_features(ba.Features(["a", "b"], [[0], [1]])).estimator
        TrackingEstimator(Features(2 prompts x 1))
        """
        before = self.estimator
        if isinstance(before, TrackingEstimator) and before.features is not None:
            raise InputError(
                f"features={features}:", f"{self} has features already. Give them once."
            )
        if before.step or len(before):
            raise InputError(
                f"features={features}: {self} has learned from {before.step} steps without them. "
                "Give them to a new policy, which learns their weights from its first step.",
                argument="features",
            )
        function, _, settings = self.name.partition("(")
        settings = settings.removesuffix(")")
        ruled = self.featured or self
        return replace(
            self,
            name=f"{function}(features={features}{', ' if settings else ''}{settings})",
            decide=ruled.decide,
            memory=ruled.memory,
            needs=replace(self.needs, scale=ruled.needs.scale, part=ruled.needs.part),
            estimator=TrackingEstimator(features),
        )

    def rollouts(self, otherwise: Any) -> Any:
        """The rollouts of the next step by the plan; after it, `otherwise`."""
        at = self.estimator.step
        return self.plan[at] if at < len(self.plan) else otherwise

    def begin(
        self,
        ids_P: Iterable[Any],
        budget: Budget,
        costs_P: ArrayLike | CostOf | None = None,
        domains_P: Sequence[Hashable] | None = None,
        *,
        decide: Decide | None = None,
        ahead: int = 0,
        resolution: float = 0.0,
        once: bool = False,
    ) -> Step:
        """Opens a step: request counts, observe rewards, end.

        Args:
            ids_P: The candidate prompts, each once, shape (P,). Use a `Pool` for many prompts.
            budget: The budget of the step. The policy sets the bounds that it leaves open.
            costs_P: Expected tokens of one rollout of each prompt, shape (P,); required if the
                budget limits tokens. Otherwise a policy with `needs.costs` weighs them, and they
                may be a function (`CostOf`).
            domains_P: The domain of each prompt; required if the budget has quotas.
            decide: A rule that replaces the policy's own in this step.
            ahead: How many earlier steps have begun and not ended. Draws differ from theirs.
            resolution: As in `Options`.
            once: As in `View`.

        Raises:
            InputError: no prompt, an id twice, bad costs or domains. BudgetError: the budget cannot
                be spent on them.
        """
        check_budget(budget)
        check_integer("ahead", ahead, 0)
        if decide is not None:
            check_function("decide", decide, _RULE)
        if self.plan:
            budget = replace(budget, rollouts=self.rollouts(budget.rollouts))
        if budget.floor is None or budget.min_group is None:
            budget = Bounds.resolve(self.needs).filled(budget)
        return Step(self, ids_P, budget, costs_P, domains_P, decide, ahead, resolution, once)

    def allocate(
        self,
        ids_P: Iterable[Any],
        budget: Budget,
        costs_P: ArrayLike | CostOf | None = None,
        domains_P: Sequence[Hashable] | None = None,
    ) -> IntArray:
        """Counts for these prompts, shape (P,): the sum is `budget.rollouts` exactly. Arguments as
        in `begin`. Of `growing` and `sequential` they are those of the policy inside.

        Raises:
            UnsupportedError: the policy decides only in rounds; use `begin`.
            InputError, BudgetError: as `begin`.
        """
        step = self.begin(ids_P, budget, costs_P, domains_P, once=True)
        if step.in_rounds():
            raise UnsupportedError(
                f"{self} decides in rounds, each after the rewards of the last: allocate() has no "
                "counts to return. Use step = policy.begin(ids_P, budget), then while (counts_P := "
                "step.request()).any(): step.observe(ids_R, rewards_R), and step.end()."
            )
        return step.request()

    def observe(
        self, ids_R: Iterable[Any], rewards_R: ArrayLike, success_R: ArrayLike | None = None
    ) -> None:
        """Updates the beliefs from one step's rollouts, one row per rollout.

        Args:
            ids_R: The prompt of each rollout, shape (R,).
            rewards_R: The reward that the trainer optimises, finite, shape (R,).
            success_R: The success of each rollout in [0, 1], which the beliefs are about, shape
                (R,). By default the rewards, which must then lie in [0, 1]. NaN and None are no
                evidence, in either.

        Raises:
            InputError: lengths differ, a reward is not finite, or a success lies outside [0, 1].

        >>> import budgetalloc as ba
        >>> policy = ba.adaptive()
        >>> policy.observe(["a", "a"], [0.2, 1.0], success_R=[0, 1])  # 0.2 for the format
        >>> policy.belief(["a"]).mean
        array([0.5])
        """
        ids = check_ids(ids_R, "ids_R")
        self.learn([(ids, *check_outcomes(rewards_R, success_R, len(ids)))])

    def learn(self, rounds: Sequence[Outcomes], resolution: float = 0.0) -> None:
        """Learns from one step's prompts, checked rewards and successes, round by round, and ends
        the step."""
        if self.memory is not None:  # first: if its update rule raises, neither changes
            self.memory.learn(*joined(rounds, resolution))
        for ids_R, _, success_R in rounds:
            self.estimator.learn(*factorize(ids_R), success_R)
        self.estimator.tick()

    def belief(self, ids_P: Iterable[Any]) -> Beta:
        """The current belief about these prompts, one entry per id; ids may repeat."""
        return self.estimator.belief(ids_P)

    def cold(self, ids_P: Iterable[Any]) -> NDArray[np.bool_]:
        """Which of these prompts were never seen, shape (P,)."""
        return self.estimator.cold(ids_P)

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, and the seed, without the settings."""
        memory = {} if self.memory is None else self.memory.state_dict()
        return {"seed": self.seed, **self.estimator.state_dict(), **memory}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()` to the bit. Raises `StateError`, and changes nothing, if it does
        not fit."""
        check_state(state)
        saved = state.get("seed")
        number = isinstance(saved, (int, np.integer)) and not isinstance(saved, bool)
        if not number or saved != self.seed:
            raise StateError(
                f"The state was saved with seed={saved!r}, this policy has seed={self.seed!r}: its "
                f"draws would differ. Build the policy with seed={saved!r}."
            )
        beliefs = {key: value for key, value in state.items() if key != "seed"}
        estimator = loaded(self.estimator, beliefs)
        if self.memory is not None:
            if "memory" not in state:
                raise StateError(
                    f"The state has no memory, which {self} needs: another policy saved it. A run "
                    "that began with adaptive() of 0.5.0 goes on with policies.sampled(groups=2, "
                    f"seed={saved})."
                )
            memory = loaded(self.memory, state)
            _check_together(memory, estimator)
            object.__setattr__(self, "memory", memory)
        object.__setattr__(self, "estimator", estimator)


def _check_together(memory: Memory, estimator: Estimator) -> None:
    """Raises `StateError` unless a memory and beliefs can be of one run; the memory may have
    started later."""
    remembered, believed = set(memory.ids()), set(estimator.ids())
    foreign, lost = len(remembered - believed), len(believed - remembered)
    if memory.step > estimator.step or foreign or (memory.step == estimator.step and lost):
        raise StateError(
            f"The state is damaged: the memory is of step {memory.step}, the beliefs of step "
            f"{estimator.step}; {foreign} prompts are in the memory only and {lost} in the beliefs "
            "only. Resume from another checkpoint."
        )
