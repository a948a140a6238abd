"""One training step of a policy. Its rollouts are the rows of one table, to which columns are only
added."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.estimator import Estimator
from budgetalloc.beliefs.expected_reward import Sums, prior_share
from budgetalloc.beliefs.ids import Id, Pool, check_ids, first_places, shuffled_order
from budgetalloc.beliefs.posterior import Beta, FloatArray, unchecked
from budgetalloc.beliefs.rewards import check_outcomes, check_rewards, merge_near_ties
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, InputError, check_flag
from budgetalloc.policies.interface import CostOf, Decide, Hinted, Rounds, View
from budgetalloc.solvers.interface import check_costs, check_domains, check_group_costs

Outcomes = tuple[list[Id], FloatArray, FloatArray]
"""Prompts, rewards and successes of rollouts, checked."""


def joined(rounds: Sequence[Outcomes], resolution: float) -> Outcomes:
    """The prompts, rewards without near ties, and successes of all rounds."""
    none = np.zeros(0)
    ids_R = [x for ids, _, _ in rounds for x in ids]
    rewards_R = np.concatenate([none, *(rewards for _, rewards, _ in rounds)])
    success_R = np.concatenate([none, *(success for _, _, success in rounds)])
    return ids_R, merge_near_ties(rewards_R, ids_R, resolution), success_R


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
        policy: Any,  # a `Policy`, which imports this module
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
        self._estimator: Estimator = policy.estimator
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
        # what each `add` brought, of each column
        self._ids_R, self._table = list[list[Id]](), defaultdict[str, list[Any]](list)

    def again(self) -> "Step":
        """This step as it began, before the first request."""
        decide = self._decide if self.replaced else None
        ahead = self.number - self._estimator.step
        about = self._costs, self._domains_P, decide, ahead, self.resolution, self.once
        return Step(self.policy, self.ids_P, self.budget, *about)

    @cached_property  # only a decision needs the order, and not every process decides
    def _order_P(self) -> IntArray:
        self._check_open()
        drawn = self.policy.seed, self.number
        order_P = shuffled_order(self.ids_P.keys_P, *drawn, self.policy.needs.seen_of(self.budget))
        memory = self.policy.memory
        if memory is None or len(order_P) == len(self.ids_P):
            return order_P
        place_K = self.ids_P.places(memory.held())
        place_K = place_K[place_K >= 0]
        place_K = place_K[shuffled_order(self.ids_P.take(place_K).keys_P, *drawn)]
        return np.concatenate([place_K, order_P[~np.isin(order_P, place_K)]])

    @cached_property
    def _shuffled(self) -> Pool:
        return self.ids_P.take(self._order_P)  # the order of the view

    @cached_property
    def cold_P(self) -> NDArray[np.bool_]:
        """Which prompts were new before the step, in the order of `ids_P`. Read it, or `request`,
        before `end`."""
        self._check_open()
        return self._estimator.cold(self.ids_P)

    def _view_of(self, ids_P: Sequence[Id], at_P: IntArray) -> View:
        """What is known of these prompts, which stand at these places of the step's."""
        costs, domains_P, memory = self._costs, self._domains_P, self.policy.memory
        estimator = self._estimator
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
        ids_R, rewards_R, success_R = joined(self._outcomes(), self.resolution)
        at_R = self._shuffled.places(ids_R)
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
        self.add(ids, rewards_R=rewards, success_R=success)

    def add(self, ids_R: list[Id], **columns: NDArray[Any]) -> None:
        """Adds rows to the step's table, as `observe` and unchecked: `rewards_R`, `success_R`, and
        what else a trainer records of each rollout."""
        columns |= {
            "place_R": self._places(ids_R),
            "round_R": np.full(len(ids_R), self.round),
            "hinted_R": np.full(len(ids_R), self.hinted),
        }
        if self._begun:
            new = Counter(columns["place_R"].tolist())
            if over := new - (self._requested - self._observed):
                at = min(over)
                earlier = f" after {self._observed[at]} before" if self._observed[at] else ""
                raise InputError(
                    f"ids_R holds {new[at]} rollouts of {self.ids_P[at]!r}{earlier}, and "
                    f"{self._requested[at]} were requested in this step: observe each rollout "
                    "once, and no others.",
                    argument="ids_R",
                )
            self._observed.update(new)
        self._ids_R.append(ids_R)
        for name, column in columns.items():
            self._table[name].append(column)

    @property
    def observed(self) -> int:
        """The rollouts observed so far."""
        return sum(map(len, self._ids_R))

    def columns(self) -> dict[str, Any]:
        """The table: a column of each name, with a row for each rollout in the order observed."""
        columns = {name: np.concatenate(parts) for name, parts in self._table.items()}
        return columns | {"ids_R": list(chain(*self._ids_R))}

    def _outcomes(self) -> list[Outcomes]:
        """What may be learned from: what each call added, without rollouts with a hint."""
        table = self._table
        rows = zip(self._ids_R, table["rewards_R"], table["success_R"], strict=True)
        return [row for row, each in zip(rows, table["hinted_R"], strict=True) if not each.any()]

    def missing(self) -> list[Id]:
        """The prompt of each rollout that was requested and not observed."""
        return [self.ids_P[at] for at in sorted((self._requested - self._observed).elements())]

    def belief_of(self, ids_R: Iterable[Any]) -> Beta:
        """The belief about each row's prompt before this step, shape (R,); `InputError` if it is
        not of this step."""
        ids_G, _, group_R = self._groups(self._places(check_ids(ids_R, "ids_R")))
        return self._estimator.belief(ids_G).take(group_R)

    def known_before(
        self, place_R: IntArray, success_R: FloatArray, earlier: Sums
    ) -> dict[str, Any]:
        """What was known about these rollouts before the step, as fields of `Rollouts`:
        `belief_R`, `baseline_R`, `prior`, `constant_R` and `expected_R`."""
        ids_G, place_G, group_R = self._groups(place_R)
        estimator = self._estimator
        alpha_G, beta_G = estimator.prior_of(ids_G)
        return {
            "belief_R": estimator.belief(ids_G).take(group_R),
            "baseline_R": self._baseline(ids_G, group_R, success_R, earlier),
            "prior": unchecked(
                Beta,
                alpha_P=alpha_G[group_R],
                beta_P=beta_G[group_R],
                spread_P=np.broadcast_to(1.0, len(group_R)),
            ),
            "constant_R": estimator.constant(ids_G)[group_R],
            "expected_R": self._expected(ids_G, place_G, group_R, success_R),
        }

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
        ids_G, _, group_R = self._groups(self._places(ids))
        return self._baseline(ids_G, group_R, success, earlier or Sums())

    def _baseline(
        self, ids_G: Pool, group_R: IntArray, success_R: FloatArray, earlier: Sums
    ) -> Beta:
        share = prior_share(earlier, sum(self._prior))
        return self._estimator.baseline_belief(ids_G, group_R, success_R, share)

    def expected_success(self, ids_R: Iterable[Any], success_R: ArrayLike) -> FloatArray | None:
        """The expected success of each rollout by the policy's own rule (`Policy.expect`), for
        `baseline="policy"`: in [0, 1], NaN for one not to train on, shape (R,); None if there is no
        rule. Arguments as in `baseline_belief`.

        >>> import budgetalloc as ba
        >>> step = ba.methods.spo().begin(["a", "b"], ba.Budget(rollouts=2, min_group=1, floor=0))
        >>> step.expected_success(["a", "b"], [0, 1])
        array([0.5, 0.5])
        """
        ids = check_ids(ids_R, "ids_R")
        success = check_rewards(success_R, len(ids), "success_R")
        return self._expected(*self._groups(self._places(ids)), success)

    def _expected(
        self, ids_G: Pool, place_G: IntArray, group_R: IntArray, success_R: FloatArray
    ) -> FloatArray | None:
        if self.policy.expect is None:
            return None
        seen = ByPrompt(ids_G, group_R, success_R, success_R)
        expected_R = self.policy.expect(self._view_of(ids_G, place_G), seen)
        return check_rewards(expected_R, len(success_R), "expect(view, seen)")

    def _groups(self, place_R: IntArray) -> tuple[Pool, IntArray, IntArray]:
        """The prompts at these places of `ids_P`, each once in the order of their first rollout,
        their places, and the index of each rollout's prompt among them."""
        self._check_open()  # afterwards, beliefs are those from after the step
        place_G, group_R = first_places(place_R)
        return self.ids_P.take(place_G), place_G, group_R

    def _places(self, ids: list[Id]) -> IntArray:
        """The place of each id in `ids_P`; raises `InputError` if one is not of this step."""
        at = self.ids_P.places(ids)
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
        self.policy.learn(self._outcomes(), self.resolution)

    def _check_open(self) -> None:
        if not self._open:
            raise InputError(
                "This step has ended: open the next one with policy.begin(ids_P, budget)."
            )
