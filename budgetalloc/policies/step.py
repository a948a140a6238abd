"""One training step of a policy: request counts, observe rewards, end."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.ids import Id, check_ids, factorize, shuffled_order
from budgetalloc.beliefs.pool import Pool
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import check_outcomes, check_rewards
from budgetalloc.beliefs.variance import prior_share
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, InputError, check_flag, shown
from budgetalloc.policies.counted_rollouts import CountedRollouts
from budgetalloc.policies.interface import (
    CostOf,
    Decide,
    Deciding,
    Hinted,
    Outcome,
    Rounds,
    Seen,
    Tally,
    View,
)
from budgetalloc.solvers.interface import check_costs, check_domains, check_group_costs

__all__ = ["Step"]


class Step:
    """One training step of a policy: request counts, observe rewards, end.

    The policy learns at `end()`; a step that is never ended does not change it. Calls in the wrong
    order and rollouts that were not requested raise an error, after which the step can go on. You
    may observe fewer rollouts than requested, in one call or in several. Without a request, you may
    observe any number of the step's prompts.

    >>> import budgetalloc as ba
    >>> step = ba.uniform().begin(["a", "b"], ba.Budget(rollouts=4))
    >>> while (counts_P := step.request()).any():
    ...     step.observe(["a", "a", "b", "b"], [1, 0, 0, 0])
    >>> step.end()
    """

    def __init__(
        self,
        policy: Deciding,
        ids_P: Iterable[Any],
        budget: Budget,
        costs_P: ArrayLike | CostOf | None,
        domains_P: Sequence[Hashable] | None,
        decide: Decide | None,
        ahead: int = 0,
    ) -> None:
        self.policy, self._decide = policy, decide or policy.decide
        self.replaced = decide is not None
        """Whether another rule than the policy's own decides this step."""
        self.ids_P, self.budget = Pool.of(ids_P), budget
        budget.check(len(self.ids_P))
        self._costs = (
            costs_P
            if costs_P is None or callable(costs_P)
            else check_costs(costs_P, len(self.ids_P))
        )
        self._domains_P = None if domains_P is None else check_domains(domains_P, len(self.ids_P))
        self.number = policy.estimator.step + ahead
        """The number of the step, from 0."""
        self._prior = policy.estimator.prior_now
        self.counted = CountedRollouts(self.ids_P)
        self._seen: list[Seen] = []
        self._tally: Tally | None = None  # of the first `_tallied` entries of `_seen`
        self._tallied = 0
        self._plan: IntArray | Rounds | None = None
        # a decision in rounds is waiting for the outcomes of its last request
        self.unfinished = False
        # the rollouts requested last are to be generated with a hint (`on_all_fail`)
        self.hinted = False
        self.round = 0  # of the rollouts requested last
        self._open = True

    @cached_property  # only a decision needs these, and not every process decides
    def _order_P(self) -> IntArray:
        self._check_open()  # beliefs and cold prompts are those from before the step
        about = self.policy.needs.seen_of(self.budget)
        return shuffled_order(self.ids_P.keys_P, self.policy.seed, self.number, about)

    @cached_property
    def _shuffled(self) -> Pool:
        return self.ids_P.take(self._order_P)  # the order of the view

    @cached_property
    def _shuffled_belief_P(self) -> Beta:
        return self.policy.belief(self._shuffled)

    @cached_property
    def _shuffled_cold_P(self) -> NDArray[np.bool_]:
        return self.policy.cold(self._shuffled)

    def _view(self) -> View:
        order_P, costs, prompt_costs_P, costs_P = self._order_P, self._costs, None, None
        if callable(costs):
            prompt_costs_P, costs_P = check_group_costs(
                costs(self._shuffled, self._shuffled_belief_P), len(order_P)
            )
        elif costs is not None:
            costs_P = costs[order_P]
        seed, step, memory = self.policy.seed, self.number, self.policy.memory
        return View(
            belief_P=self._shuffled_belief_P,
            budget=self.budget,
            costs_P=costs_P,
            domains_P=None
            if self._domains_P is None
            else [self._domains_P[at] for at in order_P.tolist()],
            rng=np.random.default_rng([seed, step, 1]),
            ids_P=self._shuffled,
            cold_P=self._shuffled_cold_P,
            step=step,
            recall={} if memory is None else memory.recall(self._shuffled),
            numbers={} if memory is None else memory.numbers,
            prior=self._prior,
            prompt_costs_P=prompt_costs_P,
            left_out=len(self.ids_P) - len(order_P),
        )

    @property
    def cold_P(self) -> NDArray[np.bool_]:
        """Which prompts were new before the step, in the order of `ids_P`. Read it, or `request`,
        before `end`."""
        if len(self._order_P) == len(self.ids_P):
            return self._shuffled_cold_P[np.argsort(self._order_P)]
        self._check_open()
        return self.policy.cold(self.ids_P)

    def in_rounds(self) -> bool:
        """Whether the policy may decide again after this step's first rewards."""
        self._check_open()
        return not isinstance(self._decision(), np.ndarray)

    def _decision(self) -> IntArray | Rounds:
        if self._plan is None:
            self._plan = self._decide(self._view())
        return self._plan

    def _next_round(self, running: list[Id]) -> IntArray | Hinted | None:
        first, plan = not self.counted.begun, self._decision()
        self.round += not first
        if isinstance(plan, np.ndarray):
            return plan if first else None
        try:
            return next(plan) if first else plan.send(self._outcomes(running))
        except StopIteration:
            return None

    def _outcomes(self, running: list[Id]) -> Tally:
        """The tally of all rounds so far; computed on demand, because most decisions have one
        round."""
        self._tally = self._tally or Tally.empty(len(self._order_P))
        for ids_R, rewards_R, success_R in self._seen[self._tallied :]:
            at_R = self._shuffled.find(ids_R)
            seen_R = at_R >= 0  # other prompts may be observed, if nothing was requested
            self._tally.add(at_R[seen_R], rewards_R[seen_R], success_R[seen_R])
        self._tallied = len(self._seen)
        running_P = (
            np.isin(self._order_P, self._places(running)) if running else self._tally.running_P
        )
        return replace(self._tally, running_P=running_P)

    def request(self, running: Iterable[Any] = ()) -> IntArray:
        """The rollouts wanted next, shape (P,); all zero when the step has spent its budget.

        If `hinted` is True afterwards, generate the rollouts with a hint.

        Args:
            running: Prompts with rollouts that are still being generated, for a policy with
                `Needs.by_group`. It then extends other groups. All zero means that it waits.
        """
        self._check_open()
        still = check_ids(running, "running")
        if still and not self.policy.needs.by_group:
            raise InputError(
                f"running={shown(still)}: {self.policy} waits for all rollouts. Observe them first."
            )
        counts_P = np.zeros(len(self.ids_P), dtype=np.int64)
        wanted = self._next_round(still)
        self.hinted = isinstance(wanted, Hinted)
        if wanted is not None:
            wanted_P = wanted.counts_P if isinstance(wanted, Hinted) else wanted
            some = np.flatnonzero(wanted_P > 0)  # few of a large pool
            counts_P[self._order_P[some]] = wanted_P[some]
        self.counted.request(counts_P)
        spent, most = self.counted.requested, self.budget.rollouts
        self.unfinished = (
            bool(counts_P.any() or still)
            and spent != most
            and not isinstance(self._plan, np.ndarray)
        )
        if most is not None and spent > most:
            raise BudgetError(
                f"{self.policy}: its rounds request {spent} rollouts in one step, and "
                f"{self.budget} allows "
                f"{most}. Let the decision count the rollouts that it has requested."
            )
        return counts_P

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
                is learned from their rewards, which say nothing about the prompt without a hint.

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
                f"hinted={self.hinted}. "
                "Generate them that way, observe them before the next request, and pass "
                f"hinted={self.hinted}."
            )
        self.counted.observe(self._places(ids))
        if not hinted:
            self._seen.append((ids, rewards, success))

    def again(self) -> "Step":
        """This step as it began, before the first request."""
        decide, ahead = (
            self._decide if self.replaced else None,
            self.number - self.policy.estimator.step,
        )
        return Step(
            self.policy, self.ids_P, self.budget, self._costs, self._domains_P, decide, ahead
        )

    def belief_of(self, ids_R: Iterable[Any]) -> Beta:
        """The belief about each row's prompt before this step, shape (R,); `InputError` if it is
        not of this step."""
        self._check_open()
        ids_G, group_R = factorize(check_ids(ids_R, "ids_R"))
        self._places(ids_G)
        return self.policy.belief(ids_G).take(group_R)

    def baseline_belief(
        self, ids_R: Iterable[Any], success_R: ArrayLike, earlier: Sums | None = None
    ) -> Beta:
        """The belief about each row's prompt before this step, for `baseline="posterior"`: shape
        (R,).

        It may have learned from other prompts of this step, and never from the prompt's own
        rollouts (`Estimator.baseline_belief`). Call it before `end`.

        Args:
            ids_R: The prompt of each rollout of this step, shape (R,), of all rounds.
            success_R: The success of each rollout in [0, 1]; NaN and None are none.
            earlier: Sums over the rewards of earlier steps. If successes were graded, the prior
                keeps only a share of its mass (`beliefs.variance.prior_share`).

        Raises:
            InputError: a prompt that is not of this step, lengths that differ, a success outside
                [0, 1].

        >>> import budgetalloc as ba
        >>> policy = ba.adaptive()
        >>> policy.observe(range(100), [0] * 100)  # 100 prompts, one rollout each, none solved
        >>> step = policy.begin(["new", "also new"], ba.Budget(rollouts=2, min_group=1, floor=0))
        >>> step.baseline_belief(["new", "also new"], [0, 1]).mean.round(3)  # the prior's mean is 0.5
        array([0.013, 0.003])
        """
        ids_G, group_R, success = self._rolled_out(ids_R, success_R)
        share = prior_share(earlier or Sums(), sum(self._prior))
        return self.policy.estimator.baseline_belief(ids_G, group_R, success, share)

    def expected_success(self, ids_R: Iterable[Any], success_R: ArrayLike) -> FloatArray | None:
        """The expected success of each rollout by the policy's own rule (`Policy.expect`), for
        `baseline="policy"`.

        In [0, 1], NaN for a rollout not to train on, shape (R,); None if there is no rule. Call it
        before `end`. Arguments and errors are those of `baseline_belief`.

        >>> import budgetalloc as ba
        >>> step = ba.methods.spo().begin(["a", "b"], ba.Budget(rollouts=2, min_group=1, floor=0))
        >>> step.expected_success(["a", "b"], [0, 1])
        array([0.5, 0.5])
        """
        if self.policy.expect is None:
            return None
        ids_G, group_R, success = self._rolled_out(ids_R, success_R)
        memory = self.policy.memory
        recall_G, numbers = ({}, {}) if memory is None else (memory.recall(ids_G), memory.numbers)
        outcome = Outcome(ids_G, group_R, success, self.policy.belief(ids_G), recall_G, numbers)
        return check_rewards(self.policy.expect(outcome), len(success), "expect(outcome)")

    def _rolled_out(
        self, ids_R: Iterable[Any], success_R: ArrayLike
    ) -> tuple[list[Id], IntArray, FloatArray]:
        self._check_open()  # afterwards, beliefs are those from after the step
        ids = check_ids(ids_R, "ids_R")
        success = check_rewards(success_R, len(ids), "success_R")
        ids_G, group_R = factorize(ids)
        self._places(ids_G)
        return ids_G, group_R, success

    def _places(self, ids: list[Id]) -> IntArray:
        """The place of each id in `ids_P`; raises `InputError` if one is not of this step."""
        at = self.ids_P.find(ids)
        if (at < 0).any():
            raise InputError(
                f"ids_R holds {ids[int(np.argmin(at))]!r}, which is not a prompt of this step: "
                "give rollouts of the "
                "prompts with which the step began."
            )
        return at

    def end(self) -> None:
        """Ends the step: the policy learns from all observed rewards. Raises `InputError` if the
        step has ended before, or if a decision in rounds is waiting for rollouts."""
        self._check_open()
        if self.unfinished:
            raise InputError(
                f"end(): {self.policy} decides in rounds, and waits for the rollouts of its last "
                "request. Observe "
                "them and call request() until all counts are 0, or begin another step, which "
                "drops this one."
            )
        self._open = False
        self.policy.learn(self._seen)

    def _check_open(self) -> None:
        if not self._open:
            raise InputError(
                "This step has ended: open the next one with policy.begin(ids_P, budget)."
            )
