"""One training step of a policy: request counts, observe rewards, end."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.cold_start import with_first_visit_prior
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.ids import Id, check_ids, factorize, shuffled_order
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.pool import Pool
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import check_outcomes, check_rewards
from budgetalloc.beliefs.variance import prior_share
from budgetalloc.budget import Budget, IntArray, check_budget
from budgetalloc.errors import BudgetError, InputError, check_flag
from budgetalloc.policies.decision import CostOf, Decide, Expect, Hinted, Outcome, Rounds, Tally, View
from budgetalloc.policies.requests import Requests
from budgetalloc.solvers.interface import check_costs, check_domains, check_group_costs

Seen = tuple[list[Id], FloatArray, FloatArray]
"""The prompts, rewards and successes of one round's rollouts."""


class Deciding(Protocol):
    """The part of a `Policy` that a step uses."""

    @property
    def decide(self) -> Decide: ...
    @property
    def estimator(self) -> BetaEstimator: ...
    @property
    def memory(self) -> Memory | None: ...
    @property
    def expect(self) -> Expect | None: ...
    @property
    def seed(self) -> int: ...
    def belief(self, ids_P: Iterable[Id], /) -> Beta: ...
    def cold(self, ids_P: Iterable[Id], /) -> NDArray[np.bool_]: ...
    def learn(self, rounds: Sequence[Seen], /) -> None: ...


class Step:
    """One training step of a policy: request counts, observe rewards, end. The policy learns at `end()`, all at once: a
    step that is never ended leaves it as it was before the step.

    Calls in the wrong order, and rollouts that were not requested, raise an error that leaves the step as it was: it
    can go on. Fewer rollouts than requested are fine, in one call or in several. Without a request the rollouts are the
    trainer's own, any number of each prompt of the step.

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
        costs_P: ArrayLike | CostOf | None = None,
        domains_P: Sequence[Hashable] | None = None,
        decide: Decide | None = None,
    ) -> None:
        self.policy, self._decide = policy, decide or policy.decide
        self.replaced = decide is not None
        """Whether another rule than the policy's own decides this step."""
        self.ids_P = Pool.of(ids_P)
        check_budget(budget)
        self.budget = budget
        budget.check(len(self.ids_P))
        self._cost_of = costs_P if callable(costs_P) else None
        self.costs_P = None if costs_P is None or callable(costs_P) else check_costs(costs_P, len(self.ids_P))
        self.domains_P = None if domains_P is None else check_domains(domains_P, len(self.ids_P))
        self._order_P = shuffled_order(self.ids_P.keys_P, policy.seed, policy.estimator.step)
        self._shuffled = self.ids_P.take(self._order_P)  # the view's order, which is that of all arrays below
        self._belief_P = policy.belief(self._shuffled)  # before the step, as an unbiased baseline requires
        self._cold_P = policy.cold(self._shuffled)
        self._start = policy.estimator.prior_now, policy.estimator.first_visits
        self._tally: Tally | None = None
        self._tallied = 0
        self._seen: list[Seen] = []  # what the policy learns at the end, round by round
        self._plan: IntArray | Rounds | None = None
        self._begun = False
        self.unfinished = False  # a decision in rounds is waiting for the outcomes of its last request
        self._requests = Requests()
        self.hinted = False  # whether the rollouts requested last are to be generated with a hint (`on_all_fail`)
        self._open = True

    def _view(self) -> View:
        order_P, prompt_costs_P = self._order_P, None
        costs_P = None if self.costs_P is None else self.costs_P[order_P]
        if self._cost_of is not None:
            prompt_costs_P, costs_P = check_group_costs(self._cost_of(self._shuffled, self._belief_P), len(order_P))
        domains_P = None if self.domains_P is None else [self.domains_P[at] for at in order_P.tolist()]
        policy = self.policy
        return View(
            belief_P=self._belief_P,
            budget=self.budget,
            costs_P=costs_P,
            domains_P=domains_P,
            rng=np.random.default_rng([policy.seed, policy.estimator.step, 1]),
            ids_P=self._shuffled,
            cold_P=self._cold_P,
            step=policy.estimator.step,
            recall={} if policy.memory is None else policy.memory.recall(self._shuffled),
            numbers={} if policy.memory is None else policy.memory.numbers,
            prior=self._start[0],
            prompt_costs_P=prompt_costs_P,
        )

    @property
    def belief_P(self) -> Beta:
        """The beliefs before the step, in the order of `ids_P`."""
        return self._belief_P.take(np.argsort(self._order_P))

    @property
    def cold_P(self) -> NDArray[np.bool_]:
        """Which prompts had never been seen before the step, in the order of `ids_P`."""
        return self._cold_P[np.argsort(self._order_P)]

    def in_rounds(self) -> bool:
        """Whether the policy decides again on this step's rewards, so that a request may be only a part of the step."""
        self._check_open()
        return not isinstance(self._decision(), np.ndarray)

    def _decision(self) -> IntArray | Rounds:
        """The policy's decision for this step, made once."""
        if self._plan is None:
            self._plan = self._decide(self._view())
        return self._plan

    def _next_round(self) -> IntArray | Hinted | None:
        """Counts in the view's order, or None when the decision has ended."""
        first, plan = not self._begun, self._decision()
        self._begun = True
        if isinstance(plan, np.ndarray):
            return plan if first else None
        try:
            return next(plan) if first else plan.send(self._outcomes())
        except StopIteration:
            return None

    def _outcomes(self) -> Tally:
        """What all rounds so far have shown: only a decision in rounds asks for it."""
        self._tally = self._tally or Tally.empty(len(self.ids_P))
        for ids_R, rewards_R, success_R in self._seen[self._tallied :]:
            self._tally.add(self._shuffled.find(ids_R), rewards_R, success_R)
        self._tallied = len(self._seen)
        return self._tally

    def request(self) -> IntArray:
        """The rollouts wanted next, shape (P,); all zero when the step has spent its budget.

        If `hinted` is True afterwards, the rollouts are to be generated with a hint.
        """
        self._check_open()
        counts_P = np.zeros(len(self.ids_P), dtype=np.int64)
        wanted = self._next_round()
        self.hinted = isinstance(wanted, Hinted)
        if wanted is not None:
            wanted_P = wanted.counts_P if isinstance(wanted, Hinted) else wanted
            some = np.flatnonzero(wanted_P != 0)  # few of a large pool
            counts_P[self._order_P[some]] = wanted_P[some]
        total, most = int(counts_P.sum()), self.budget.rollouts
        self._requests.add(counts_P, total)
        spent = self._requests.total
        self.unfinished = total > 0 and spent != most and not isinstance(self._plan, np.ndarray)
        if most is not None and spent > most:
            raise BudgetError(
                f"{self.policy}: its rounds request {spent} rollouts in one step, and {self.budget} allows "
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
        """Adds rewards of this step's rollouts, one row per rollout, shape (R,). A decision in rounds uses them next.

        Args:
            ids_R, rewards_R, success_R: As in `Policy.observe`.
            hinted: Whether the rollouts were generated with a hint, as `Step.hinted` asked. The beliefs, the memory and
                the next round do not use these rewards, which say nothing about the prompt without a hint.

        Raises:
            InputError: as `Policy.observe`; a prompt that is not of this step; more rollouts of a prompt than were
                requested; `hinted` is not what the last request asked for.
        """
        self._check_open()
        check_flag("hinted", hinted)
        ids = check_ids(ids_R, "ids_R")
        rewards, success = check_outcomes(rewards_R, success_R, len(ids))
        if bool(hinted) != self.hinted:
            raise InputError(
                f"observe(..., hinted={hinted!r}): {self.policy} requested rollouts with hinted={self.hinted}. "
                "Generate them so, observe them before the next request, and pass the same."
            )
        self._requests.observe(self.ids_P, self._order_P[self._places(ids)])
        if hinted:
            return
        self._seen.append((ids, rewards, success))

    def belief_of(self, ids_R: Iterable[Any]) -> Beta:
        """The belief about each row's prompt before this step, shape (R,); `InputError` if it is not of this step."""
        return self._belief_P.take(self._places(check_ids(ids_R, "ids_R")))

    def baseline_belief(self, ids_R: Iterable[Any], success_R: ArrayLike, earlier: Sums | None = None) -> Beta:
        """The belief about each row's prompt before this step, for `baseline="posterior"`: shape (R,).

        The mean of its prior is the recent mean success of prompts on their first visit, in earlier steps and in this
        one, without the prompt's own rollouts (`beliefs.cold_start.with_first_visit_prior`). A mean of 1/2 would be far
        off in a large pool of hard prompts that are rolled out once or twice.

        Args:
            ids_R: The prompt of each rollout of this step, shape (R,), of all rounds.
            success_R: The success of each rollout in [0, 1], as observed; NaN and None are none.
            earlier: What earlier steps showed about rewards. If successes were graded, the prior keeps only a share of
                its mass (`beliefs.variance.prior_share`).

        Raises:
            InputError: a prompt that is not of this step, lengths that differ, a success outside [0, 1].

        >>> import budgetalloc as ba
        >>> policy = ba.adaptive()
        >>> policy.observe(range(100), [0] * 100)  # 100 prompts, met once each, none of them solved
        >>> step = policy.begin(["new", "also new"], ba.Budget(rollouts=2, min_group=1, floor=0))
        >>> step.baseline_belief(["new", "also new"], [0, 1]).mean.round(3)  # the prior's mean is 0.5
        array([0.013, 0.003])
        """
        at_G, group_R, success = self._rolled_out(ids_R, success_R)
        belief_R, cold_R = self._belief_P.take(at_G[group_R]), self._cold_P[at_G[group_R]]
        prior, visits = self._start
        share = prior_share(earlier or Sums(), sum(prior))
        return with_first_visit_prior(belief_R, prior, cold_R, success, group_R, visits, share)

    def expected_success(self, ids_R: Iterable[Any], success_R: ArrayLike) -> FloatArray | None:
        """The expected success of each rollout by the policy's own rule, for `baseline="policy"`, before `end`.

        In [0, 1], NaN for a rollout not to train on, shape (R,); None if the policy has no such rule (`Policy.expect`).
        Arguments and errors as in `baseline_belief`.

        >>> import budgetalloc as ba
        >>> step = ba.policies.spo().begin(["a", "b"], ba.Budget(rollouts=2, min_group=1, floor=0))
        >>> step.expected_success(["a", "b"], [0, 1])
        array([0.5, 0.5])
        """
        if self.policy.expect is None:
            return None
        at_G, group_R, success = self._rolled_out(ids_R, success_R)
        ids_G, memory = [self._shuffled[at] for at in at_G.tolist()], self.policy.memory
        recall_G, numbers = ({}, {}) if memory is None else (memory.recall(ids_G), memory.numbers)
        outcome = Outcome(ids_G, group_R, success, self._belief_P.take(at_G), recall_G, numbers)
        return check_rewards(self.policy.expect(outcome), len(success), "expect(outcome)")

    def _rolled_out(self, ids_R: Iterable[Any], success_R: ArrayLike) -> tuple[IntArray, IntArray, FloatArray]:
        """The place in the view of each prompt G, the prompt of each rollout, and its success."""
        ids = check_ids(ids_R, "ids_R")
        success = check_rewards(success_R, len(ids), "success_R")
        ids_G, group_R = factorize(ids)
        return self._places(ids_G), group_R, success

    def _places(self, ids: list[Id]) -> IntArray:
        """The place of each prompt in the view."""
        at = self._shuffled.find(ids)
        if (at < 0).any():
            raise InputError(
                f"ids_R holds {ids[int(np.argmin(at))]!r}, which is not a prompt of this step: give rollouts of the "
                "prompts with which the step began."
            )
        return at

    def end(self) -> None:
        """Ends the step: the policy learns from all observed rewards.

        Raises:
            InputError: the step has ended before, or the policy decides in rounds and has not requested all of them.
        """
        self._check_open()
        if self.unfinished:
            raise InputError(
                f"end(): {self.policy} decides in rounds, and waits for the rollouts of its last request. Observe "
                "them, and call request() until all its counts are 0; or begin another step, which drops this one."
            )
        self._open = False
        self.policy.learn(self._seen)

    def _check_open(self) -> None:
        if not self._open:
            raise InputError("This step has ended: open the next one with policy.begin(ids_P, budget).")
