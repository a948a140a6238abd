"""A policy (its beliefs, its rule and its state), and one training step of it."""

import copy
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.estimator import Estimator
from budgetalloc.beliefs.expected_reward import Sums, prior_share
from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.ids import Id, Pool, check_ids, factorize, shuffled_order
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import check_outcomes, check_rewards, levelled
from budgetalloc.beliefs.state import check_state, unchanged_on_error
from budgetalloc.beliefs.tracking import TrackingEstimator
from budgetalloc.budget import Budget, IntArray, check_budget
from budgetalloc.errors import (
    BudgetError,
    InputError,
    StateError,
    UnsupportedError,
    check_flag,
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
    Hinted,
    Keep,
    Needs,
    Rounds,
    View,
)
from budgetalloc.solvers.interface import check_costs, check_domains, check_group_costs

_RULE = "of a View that returns counts, or yields them in rounds"
_Rows = tuple[list[Id], FloatArray, FloatArray]  # prompts, rewards and successes


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
        decide_with_features: The rule that `with_features` puts in place of `decide`, if any.
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
    decide_with_features: Decide | None = None
    plan: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_type("name", self.name, str, "the policy's name")
        check_function("decide", self.decide, _RULE)
        check_type("estimator", self.estimator, Estimator, "an estimator: ba.BetaEstimator()")
        check_seed(self.seed)
        check_type("needs", self.needs, Needs, "what it asks of a trainer, such as ba.Needs()")
        check_type("memory", self.memory, (Memory, type(None)), "a Memory or None")
        for name, what in (
            ("decide_with_features", _RULE),
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
        object.__setattr__(self, "estimator", copy.deepcopy(self.estimator))
        object.__setattr__(self, "memory", copy.deepcopy(self.memory))
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
        return replace(
            self,
            name=f"{function}(features={features}{', ' if settings else ''}{settings})",
            decide=self.decide_with_features or self.decide,
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
    ) -> "Step":
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

    def learn(self, rounds: Sequence[_Rows], resolution: float = 0.0) -> None:
        """Learns from one step's prompts, checked rewards and successes, round by round, and ends
        the step."""
        if self.memory is not None:  # first: if its update rule raises, neither changes
            self.memory.learn(*_joined(rounds, resolution))
        for ids_R, _, success_R in rounds:
            self.estimator.observe(ids_R, success_R)
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
        with unchanged_on_error(self.estimator):
            self.estimator.load_state_dict(beliefs)
            if self.memory is not None:
                # loading replaces its columns and changes none of them
                memory = copy.copy(self.memory)
                memory.load_state_dict(state)
                _check_together(memory, self.estimator)
                self.memory.load_state_dict(state)


def _joined(rounds: Sequence[_Rows], resolution: float) -> _Rows:
    """The prompts, rewards without near ties, and successes of all rounds."""
    none = np.zeros(0)
    ids_R = [x for ids, _, _ in rounds for x in ids]
    rewards_R = np.concatenate([none, *(rewards for _, rewards, _ in rounds)])
    success_R = np.concatenate([none, *(success for _, _, success in rounds)])
    return ids_R, levelled(rewards_R, ids_R, resolution), success_R


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


class Step:
    """One training step of a policy: request counts, observe rewards, end.

    The policy learns at `end()`; a step that is never ended does not change it. An error, as for
    rollouts that were not requested, leaves the step as it was. You may observe fewer rollouts than
    requested, in one call or in several, and without a request any of the step's prompts.

    >>> import budgetalloc as ba
    >>> step = ba.uniform().begin(["a", "b"], ba.Budget(rollouts=4))
    >>> while (counts_P := step.request()).any():
    ...     step.observe(["a", "a", "b", "b"], [1, 0, 0, 0])
    >>> step.end()
    """

    def __init__(
        self,
        policy: Policy,
        ids_P: Iterable[Any],
        budget: Budget,
        costs_P: ArrayLike | CostOf | None,
        domains_P: Sequence[Hashable] | None,
        decide: Decide | None,
        ahead: int,
        resolution: float,
        once: bool,
    ) -> None:
        self.policy, self.resolution, self.once = policy, resolution, once
        self.ids_P = Pool.of(ids_P)
        self.budget = budget
        budget.check(len(self.ids_P))
        self._costs = costs_P
        if costs_P is not None and not callable(costs_P):
            self._costs = check_costs(costs_P, len(self.ids_P))
        self._domains_P = None if domains_P is None else check_domains(domains_P, len(self.ids_P))
        self._decide = decide or policy.decide
        self.replaced = decide is not None
        """Whether another rule than the policy's own decides this step."""
        self.number = policy.estimator.step + ahead
        """The number of the step, from 0."""
        self.round = 0
        """The round of the rollouts requested last."""
        self.hinted = False
        """Whether the rollouts requested last are to be generated with a hint (`on_all_fail`)."""
        self.unfinished = False
        """Whether a decision in rounds is waiting for the outcomes of its last request."""
        self._prior = policy.estimator.prior_now
        self._plan: IntArray | Rounds | None = None
        self._begun, self._open = False, True
        # by place in `ids_P`: few of a large pool
        self._requested, self._observed = Counter[int](), Counter[int]()
        self._seen: list[_Rows] = []  # one for each `observe`
        self._grouped: tuple[list[Id], list[Id], IntArray] | None = None  # the last ids by group

    def again(self) -> "Step":
        """This step as it began, before the first request."""
        decide = self._decide if self.replaced else None
        ahead = self.number - self.policy.estimator.step
        about = self._costs, self._domains_P, decide, ahead, self.resolution, self.once
        return Step(self.policy, self.ids_P, self.budget, *about)

    @cached_property  # only a decision needs the order, and not every process decides
    def _order_P(self) -> IntArray:
        self._check_open()
        about = self.policy.needs.seen_of(self.budget)
        return shuffled_order(self.ids_P.keys_P, self.policy.seed, self.number, about)

    @cached_property
    def _shuffled(self) -> Pool:
        return self.ids_P.take(self._order_P)  # the order of the view

    @cached_property
    def cold_P(self) -> NDArray[np.bool_]:
        """Which prompts were new before the step, in the order of `ids_P`. Read it, or `request`,
        before `end`."""
        self._check_open()
        return self.policy.estimator.cold(self.ids_P)

    def _view_of(self, ids_P: Sequence[Id], at_P: IntArray) -> View:
        """What is known of these prompts, which stand at these places of the step's."""
        costs, domains_P, memory = self._costs, self._domains_P, self.policy.memory
        estimator = self.policy.estimator
        belief_P = estimator.belief(ids_P)
        prompt_costs_P = costs_P = None
        if callable(costs):
            prompt_costs_P, costs_P = check_group_costs(costs(ids_P, belief_P), len(at_P))
        elif costs is not None:
            costs_P = np.asarray(costs)[at_P]
        whole = len(at_P) == len(self.ids_P)
        return View(
            belief_P=belief_P,
            budget=self.budget,
            costs_P=costs_P,
            domains_P=None if domains_P is None else [domains_P[at] for at in at_P.tolist()],
            rng=np.random.default_rng([self.policy.seed, self.number, 1]),
            ids_P=ids_P,
            cold_P=self.cold_P[at_P] if whole else estimator.cold(ids_P),
            step=self.number,
            recall={} if memory is None else memory.recall(ids_P),
            numbers={} if memory is None else memory.numbers,
            prior=self._prior,
            prompt_costs_P=prompt_costs_P,
            left_out=len(self.ids_P) - len(at_P),
            once=self.once,
        )

    def in_rounds(self) -> bool:
        """Whether the policy may decide again after this step's first rewards."""
        self._check_open()
        return not isinstance(self._decision(), np.ndarray)

    def _decision(self) -> IntArray | Rounds:
        if self._plan is None:
            self._plan = self._decide(self._view_of(self._shuffled, self._order_P))
        return self._plan

    def request(self, running: Iterable[Any] = ()) -> IntArray:
        """The rollouts wanted next, shape (P,); all zero when the step has spent its budget.

        If `hinted` is True afterwards, generate the rollouts with a hint. A policy with
        `Needs.by_group` may be told the prompts with rollouts that are still being generated,
        `running`. It then extends other groups; all zero means that it waits.
        """
        self._check_open()
        still = check_ids(running, "running")
        if still and not self.policy.needs.by_group:
            raise InputError(
                "running", f"{self.policy} waits for all rollouts. Observe them first.", still
            )
        first, plan = not self._begun, self._decision()
        wanted: IntArray | Hinted | None = None
        if not isinstance(plan, np.ndarray):
            with suppress(StopIteration):
                wanted = next(plan) if first else plan.send(self._so_far(still))
        elif first:
            wanted = plan
        self._begun, self.round = True, self.round + (not first)
        self.hinted = isinstance(wanted, Hinted)
        counts_P = np.zeros(len(self.ids_P), dtype=np.int64)
        if wanted is not None:
            wanted_P = wanted.counts_P if isinstance(wanted, Hinted) else wanted
            some = np.flatnonzero(wanted_P > 0)  # few of a large pool
            at = self._order_P[some]
            counts_P[at] = wanted_P[some]
            self._requested.update(dict(zip(at.tolist(), counts_P[at].tolist(), strict=True)))
        spent, most = self._requested.total(), self.budget.rollouts
        waits = bool(counts_P.any() or still) and spent != most
        self.unfinished = waits and not isinstance(plan, np.ndarray)
        if most is not None and spent > most:
            raise BudgetError(
                f"{self.policy}: its rounds request {spent} rollouts in one step, and "
                f"{self.budget} allows {most}. Let the decision count the rollouts that it has "
                "requested."
            )
        return counts_P

    def _so_far(self, running: list[Id]) -> ByPrompt:
        """The rollouts of all rounds so far, by the prompts of the view. Others may be observed, if
        nothing was requested; they are left out."""
        ids_R, rewards_R, success_R = _joined(self._seen, self.resolution)
        at_R = self._shuffled.find(ids_R)
        own_R = at_R >= 0
        running_P = np.isin(self._order_P, self._places(running))
        rows = at_R[own_R], rewards_R[own_R], success_R[own_R]
        return ByPrompt(self._shuffled, *rows, running_P)

    def observe(
        self,
        ids_R: Iterable[Any],
        rewards_R: ArrayLike,
        success_R: ArrayLike | None = None,
        *,
        hinted: bool = False,
    ) -> None:
        """Adds rewards of this step's rollouts, one row per rollout.

        Args:
            ids_R, rewards_R, success_R: As in `Policy.observe`.
            hinted: Whether the rollouts were generated with a hint, as `Step.hinted` asked. Nothing
                is learned from their rewards.

        Raises:
            InputError: as `Policy.observe`; a stranger; more rollouts than were requested; another
                `hinted`.
        """
        self._check_open()
        check_flag("hinted", hinted)
        ids = check_ids(ids_R, "ids_R")
        rewards, success = check_outcomes(rewards_R, success_R, len(ids))
        if bool(hinted) != self.hinted:
            raise InputError(
                f"observe(..., hinted={hinted!r}): {self.policy} requested rollouts with "
                f"hinted={self.hinted}. Generate them that way, observe them before the next "
                f"request, and pass hinted={self.hinted}."
            )
        self._count(self._places(ids))
        if not hinted:
            self._seen.append((ids, rewards, success))

    def _count(self, at_R: IntArray) -> None:
        """Counts observed rollouts; raises `InputError`, and counts none, if a prompt then has more
        than were requested."""
        if not self._begun:
            return
        new = Counter(at_R.tolist())
        if over := new - (self._requested - self._observed):
            at = min(over)
            earlier = f" after {self._observed[at]} before" if self._observed[at] else ""
            raise InputError(
                f"ids_R holds {new[at]} rollouts of {self.ids_P[at]!r}{earlier}, and "
                f"{self._requested[at]} were requested in this step: observe each rollout once, "
                "and no others.",
                argument="ids_R",
            )
        self._observed.update(new)

    def missing(self) -> list[Id]:
        """The prompt of each rollout that was requested and not observed."""
        return [self.ids_P[at] for at in sorted((self._requested - self._observed).elements())]

    def belief_of(self, ids_R: Iterable[Any]) -> Beta:
        """The belief about each row's prompt before this step, shape (R,); `InputError` if it is
        not of this step."""
        ids_G, group_R = self._groups(check_ids(ids_R, "ids_R"))
        return self.policy.estimator.belief(ids_G).take(group_R)

    def constant_success(self, ids_R: Iterable[Any]) -> FloatArray:
        """The success of each row's prompt if it did not change before this step, else NaN, shape
        (R,) (`Estimator.constant`)."""
        ids_G, group_R = self._groups(check_ids(ids_R, "ids_R"))
        return np.asarray(self.policy.estimator.constant(ids_G)[group_R])

    def baseline_belief(
        self, ids_R: Iterable[Any], success_R: ArrayLike, earlier: Sums | None = None
    ) -> Beta:
        """The belief about each row's prompt for `baseline="posterior"`, shape (R,), before `end`.

        It may have learned from other prompts of this step, and never from the prompt's own
        rollouts (`Estimator.baseline_belief`).

        Args:
            ids_R: The prompt of each rollout of this step, shape (R,), of all rounds.
            success_R: The success of each rollout in [0, 1]; NaN and None are none.
            earlier: Sums over the rewards of earlier steps. If successes were graded, the prior
                keeps only a share of its mass (`beliefs.expected_reward.prior_share`).

        >>> import budgetalloc as ba
        >>> policy = ba.adaptive()
        >>> policy.observe(range(100), [0] * 100)  # 100 prompts, one rollout each, none solved
        >>> step = policy.begin(["new", "also new"], ba.Budget(rollouts=2, min_group=1, floor=0))
        >>> step.baseline_belief(["new", "also new"], [0, 1]).mean.round(3)  # the prior's is 0.5
        array([0.013, 0.003])
        """
        ids = check_ids(ids_R, "ids_R")
        success = check_rewards(success_R, len(ids), "success_R")
        ids_G, group_R = self._groups(ids)
        share = prior_share(earlier or Sums(), sum(self._prior))
        return self.policy.estimator.baseline_belief(ids_G, group_R, success, share)

    def expected_success(self, ids_R: Iterable[Any], success_R: ArrayLike) -> FloatArray | None:
        """The expected success of each rollout by the policy's own rule (`Policy.expect`), for
        `baseline="policy"`: in [0, 1], NaN for one not to train on, shape (R,); None if there is no
        rule. Arguments as in `baseline_belief`.

        >>> import budgetalloc as ba
        >>> step = ba.methods.spo().begin(["a", "b"], ba.Budget(rollouts=2, min_group=1, floor=0))
        >>> step.expected_success(["a", "b"], [0, 1])
        array([0.5, 0.5])
        """
        if self.policy.expect is None:
            return None
        ids = check_ids(ids_R, "ids_R")
        success = check_rewards(success_R, len(ids), "success_R")
        ids_G, group_R = self._groups(ids)
        seen = ByPrompt(ids_G, group_R, success, success)
        expected_R = self.policy.expect(self._view_of(ids_G, self._places(ids_G)), seen)
        return check_rewards(expected_R, len(success), "expect(view, seen)")

    def _groups(self, ids: list[Id]) -> tuple[list[Id], IntArray]:
        """The prompts of these rollouts of the step, and the index of each in them."""
        self._check_open()  # afterwards, beliefs are those from after the step
        if self._grouped is None or self._grouped[0] != ids:
            ids_G, group_R = factorize(ids)
            self._places(ids_G)
            self._grouped = ids, ids_G, group_R
        return self._grouped[1:]

    def _places(self, ids: list[Id]) -> IntArray:
        """The place of each id in `ids_P`; raises `InputError` if one is not of this step."""
        at = self.ids_P.find(ids)
        if (at < 0).any():
            raise InputError(
                f"ids_R holds {ids[int(np.argmin(at))]!r}, which is not a prompt of this step: "
                "give rollouts of the prompts with which the step began.",
                argument="ids_R",
            )
        return at

    def end(self) -> None:
        """Ends the step: the policy learns from all observed rewards. Raises `InputError` if the
        step has ended before, or if a decision in rounds is waiting for rollouts."""
        self._check_open()
        if self.unfinished:
            raise InputError(
                f"end(): {self.policy} decides in rounds, and waits for the rollouts of its last "
                "request. Observe them and call request() until all counts are 0, or begin another "
                "step, which drops this one."
            )
        self._open = False
        self.policy.learn(self._seen, self.resolution)

    def _check_open(self) -> None:
        if not self._open:
            raise InputError(
                "This step has ended: open the next one with policy.begin(ids_P, budget)."
            )
