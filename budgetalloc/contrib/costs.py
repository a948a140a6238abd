"""What rollouts cost, learned from every step, and a budget of it."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.lengths import Lengths
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.state import Stateful, loaded
from budgetalloc.contrib.prices import Price, Seconds, tokens
from budgetalloc.errors import InputError, UnsupportedError, check_number, nearest_name, short_repr
from budgetalloc.policies import Step
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.solvers.interface import check_group_costs
from budgetalloc.training.clock import Clock
from budgetalloc.training.parts import Host, Part, Plan

if TYPE_CHECKING:
    from budgetalloc.training.session import Session

logger = logging.getLogger(__name__)
_TOKENS = "tokens"  # a rollout's own tokens in `cost=`, which need no report
_LEAST = 1e-9  # the lowest cost of a rollout that reported 0
_FLAT = 10  # steps in a row in which seconds did not depend on lengths, before a warning
_MOST = 4.0  # the highest price of a budget
_RATE = 0.5  # change of the price after a step that cost twice the target
_FACTOR = 16.0  # a rollout weighs at most so many times the mean cost, and at least that part
_PATIENCE = 20  # steps in a row above the target at the highest price, before a warning
Kind = Literal["tokens", "seconds"]
Cost = Kind | Mapping[str, float] | Price | None
"""What a rollout costs: tokens, seconds, prices of what it reports by name, or a function of the
tokens of prompts and of their answers (`Price`)."""


def check_cost(cost: Any) -> None:
    """Raises `InputError` unless this is a `Cost`.

    >>> check_cost({"tokens": 1, "turns": 0.5})
    """
    if cost is None or callable(cost) or (isinstance(cost, str) and cost in get_args(Kind)):
        return
    prices = cost.items() if isinstance(cost, Mapping) else []
    for name, price in prices:
        if not isinstance(name, str) or not name:
            raise InputError(
                "cost", f'{short_repr(name)} is not a name. Use texts such as "turns".', cost
            )
        check_number(f"cost[{name!r}]", price, 0, math.inf)
    if not any(price for _, price in prices):
        near = nearest_name(cost, get_args(Kind)) if isinstance(cost, str) else "."
        raise InputError(
            "cost",
            f"use 'tokens', 'seconds'{near} Or prices by name, not all 0, such as "
            "{'tokens': 1, 'turns': 50}, or a function of two arrays, the tokens of each prompt "
            "and of its expected answer, that returns the cost of each prompt once a group and "
            "that of one rollout.",
            cost,
        )


@dataclass
class CostBudget(Stateful):
    """Keeps the mean cost of a step near a target, with as many rollouts as the trainer needs.

    Costs enter the decision as (cost / mean cost) ** price. The price starts at 1, where costs
    count as without a budget. It rises after a step that cost more than the target, and falls, not
    below 0, after a cheaper one: projected online gradient descent on the dual of the budget, as in
    CERO (arXiv 2606.05606). At 0 all rollouts count alike, and a run that still costs less than the
    target stays below it. The price is at most 4, and a rollout counts for 1/16
    to 16 times the mean cost, so no prompt is starved.

    Args:
        target: What a step may cost on average, in the unit of `cost=`, positive.
        price, spent, steps: The price, and the sum of what steps cost.
        over: Steps that cost more than the target although the price was at its highest.
        in_a_row: The latest of them in a row.

    >>> budget = CostBudget(target=100.0)
    >>> budget.learn(180.0)
    >>> round(budget.price, 3)
    1.4
    >>> # further apart than they are
    >>> budget.weighed(np.zeros(2), np.array([50.0, 150.0]))[1].round()
    array([ 38., 176.])
    """

    saved = ("price", "spent", "steps", "over", "in_a_row")

    target: float
    price: float = 1.0
    spent: float = 0.0
    steps: int = 0
    over: int = 0
    in_a_row: int = 0

    def weighed(self, once_P: FloatArray, each_P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The costs that the decision weighs, from those of each prompt once a group and of one
        rollout."""
        mean = each_P.mean()
        relative_P = np.clip((each_P / mean) ** self.price, 1 / _FACTOR, _FACTOR)
        return once_P * relative_P * mean / each_P, relative_P * mean

    def check_restored(self) -> None:
        if not 0 <= self.price <= _MOST or self.spent < 0:
            raise InputError(f"price={self.price} is not from 0 to {_MOST:g}", argument="price")

    def learn(self, spent: float) -> None:
        """Moves the price after a step that cost this much."""
        held = self.price >= _MOST and spent > self.target
        self.over += held
        self.in_a_row = self.in_a_row + 1 if held else 0
        self.price = min(max(0.0, self.price + _RATE * (spent / self.target - 1)), _MOST)
        self.spent, self.steps = self.spent + spent, self.steps + 1


class Costs(Part):
    """What the rollouts of a training cost: rollouts go where a cost buys most.

    Expected lengths, or costs by what rollouts report, are learned per prompt. A prompt's text is
    paid for once per group, so long prompts get groups. The prices of "seconds" are fitted to the
    time of the trainer's steps, without callbacks, evaluations and checkpoints; such a run cannot
    be repeated to the bit. A rollout without a report counts with the cost that was expected of it;
    a name that nothing has reported yet counts as 0. What is missing is counted and logged once.

    Args:
        cost: What a rollout costs.
        per_step: What a step may cost on average, in the unit of `cost`; None for no budget.

    Raises:
        InputError: `cost` is none, or `per_step` is not positive or in seconds. `attach` raises
            `UnsupportedError` if the policy does not weigh costs, or nothing measures the seconds.

    >>> import budgetalloc as ba
    >>> costs = Costs({"tokens": 1.0, "turns": 50.0})
    >>> session = ba.Session("adaptive", ["reward"], pool=["a"], parts=[costs], quiet=True)
    >>> session.begin([], rollouts=2, group=2)
    >>> reports = {"turns": [2, 1]}
    >>> session.observe(session.request(), [0.0, 1.0], lengths_R=[100, 400], costs_R=reports)
    >>> session.end().batch.costs_R
    array([200., 450.])
    """

    prompt_lengths = True

    def __init__(self, cost: Cost, per_step: float | None = None) -> None:
        check_cost(cost)
        self.cost, self.budget = cost, None
        if per_step is not None:
            per_step = check_number("cost_per_step", per_step, 0, math.inf, without=(0,))
            if cost is None or cost == "seconds":
                raise InputError(
                    f"cost_per_step={per_step:g} with cost={cost!r}: it is in the unit of cost=, "
                    "which must be fixed. Use cost='tokens', or prices by name such as "
                    "{'tokens': 1, 'turns': 50}.",
                    argument="cost_per_step",
                )
            self.budget = CostBudget(per_step)
        self.prices: dict[str, float] = {}
        """The price of what rollouts report, by name, and of their own "tokens"."""
        self.price: Price
        if isinstance(cost, Mapping):
            self.prices = {name: float(price) for name, price in cost.items()}
            self.reports = tuple(name for name in self.prices if name != _TOKENS)
            self.price, self.lengths = self._of_reports, Lengths(_LEAST)
        else:
            self.price = cost if callable(cost) else Seconds() if cost == "seconds" else tokens
            self.lengths = Lengths()
        self.clock = Clock() if isinstance(self.price, Seconds) else None
        self.quiet = True
        self._spent: FloatArray | None = None  # rollouts and tokens since the last lap
        self._warm = False  # the first lap includes compiling and warming up
        self._flat = 0  # steps in a row in which a token of an answer had no price
        self._reported: set[str] = set()
        self._said: set[str] = set()
        self._lost = 0.0

    def _of_reports(
        self, prompt_P: FloatArray, cost_P: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        return self.prices.get(_TOKENS, 0.0) * prompt_P, cost_P

    def attach(self, session: "Session", host: Host) -> None:
        self.quiet = session.quiet
        if not session.policy.needs.costs:
            raise UnsupportedError(
                f"cost={short_repr(self.cost)}: {session.policy} does not weigh costs. Use "
                "ba.adaptive(), policies.sampled(), ba.knapsack() or ba.thompson(); a policy of "
                "yours that reads View.priced says so by Needs(costs=True)."
            )
        if self.clock is not None and not host.measures_seconds:
            raise InputError(
                "cost='seconds': only the adapters for TRL measure the seconds of a step. Report "
                'the seconds of each rollout: cost={"seconds": 1} and observe(..., '
                'costs_R={"seconds": ...}).',
                argument="cost",
            )

    def start(self) -> None:
        """Forgets what was measured since the last decision."""
        if self.clock is not None:
            self.clock.stop()
            self.clock.lap()
        self._spent, self._warm = None, False

    def plan(self, plan: Plan) -> Plan:
        if self.clock is not None:
            self._learn_seconds(self.clock.lap())
        return replace(plan, costs=self.weighed)

    def _learn_seconds(self, took: float) -> None:
        """Learns what the rollouts since the last decision cost."""
        spent, self._spent = self._spent, None
        if not isinstance(self.price, Seconds) or spent is None:
            return
        if not self._warm:
            self._warm = True
            return
        self.price.learn(spent, took)
        self._flat = self._flat + 1 if self.price.at_bound[-1] else 0
        if self._flat == _FLAT:
            self._say(
                "flat",
                "cost='seconds': the seconds of the last %d steps did not depend on how long the "
                "answers were. Long and short answers are therefore taken to cost the same. This "
                "happens if a step waits for the longest answer, or if all answers have about the "
                "same length. cost='tokens' charges for length nevertheless.",
                _FLAT,
            )

    def expected(self, ids_P: Sequence[Id], belief_P: Beta) -> tuple[FloatArray, FloatArray]:
        """The expected cost of each prompt once a group, and of one rollout, shape (P,) each."""
        lengths = self.lengths.expected(ids_P, belief_P.mean)
        return check_group_costs(self.price(*lengths), len(ids_P))

    def weighed(self, ids_P: Sequence[Id], belief_P: Beta) -> tuple[FloatArray, FloatArray]:
        """The costs that a decision weighs: the expected ones, at the price of the budget if there
        is one."""
        costs = self.expected(ids_P, belief_P)
        return costs if self.budget is None else self.budget.weighed(*costs)

    def record(self, rollouts: Rollouts, step: Step) -> Rollouts:
        """The record with `costs_R`, unless costs are seconds, whose prices change."""
        self._lost = 0.0
        if missing := step.missing():
            self._lost = float(self.expected(missing, step.belief_of(missing))[1].sum())
        return (
            rollouts if self.clock is not None else replace(rollouts, costs_R=self._paid(rollouts))
        )

    def _own(self, rollouts: Rollouts) -> FloatArray:
        """What `lengths` learns of each rollout: its tokens, or its cost without the prompt, NaN if
        it is not reported."""
        tokens_R = np.maximum(rollouts.lengths_R, 1).astype(np.float64)
        if not self.prices:
            return tokens_R
        costs_R = self.prices.get(_TOKENS, 0.0) * tokens_R
        for name in self.reports:
            column_R = rollouts.reported[name]
            if name in self._reported or not np.isnan(column_R).all():
                costs_R = costs_R + self.prices[name] * column_R
        return np.maximum(costs_R, _LEAST)  # NaN stays NaN

    def _paid(self, rollouts: Rollouts) -> FloatArray:
        prompt_R, own_R = _prompts(rollouts), self._own(rollouts)
        once_R, each_R = self.price(prompt_R, own_R)
        if (missing_R := np.isnan(each_R)).any():
            expected_R = self.expected(rollouts.ids_R, rollouts.belief_R)[1]
            each_R = np.where(missing_R, expected_R, each_R)
        return np.asarray(each_R + once_R / rollouts.counts_R)

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Learns the costs of a step's rollouts, except those with a hint, which have another
        prompt.

        Returns:
            The mean cost of a rollout, by its expected (`cost/expected`) and by its real lengths or
            reports (`cost/rollout`) at the same prices; with seconds, `cost/at_bound`, the number
            of the four prices at their lower bound; with reports, `cost/missing`, the rollouts
            without one; with a budget, `cost/mean` of a step so far, `cost/target`, `cost/price`
            and `cost/over`, the steps above the target at the highest price.
        """
        if rollouts is None:
            return {}
        own_R, prompt_R = self._own(rollouts), _prompts(rollouts)
        once_R, each_R = self.expected(rollouts.ids_R, rollouts.belief_R)
        whole = once_R[rollouts.first_G].sum() + each_R.sum()
        metrics = {
            "cost/expected": float(whole / len(rollouts)),
            "cost/rollout": float(self._paid(rollouts).mean()),
        }
        if isinstance(self.price, Seconds):
            metrics["cost/at_bound"] = float(self.price.at_bound.sum())
        if self.prices:
            metrics["cost/missing"] = float(np.isnan(own_R).sum())
        if (budget := self.budget) is not None:
            metrics |= {"cost/mean": budget.spent / budget.steps} if budget.steps else {}
            metrics |= {"cost/target": budget.target, "cost/price": budget.price}
            metrics["cost/over"] = float(budget.over)
        rows = np.flatnonzero(~rollouts.hinted_R & ~np.isnan(own_R))
        ids_K = [rollouts.ids_R[at] for at in rows.tolist()]
        success_K, prompts_K = rollouts.success_R[rows], prompt_R[rows].astype(np.int64)
        self.lengths.observe(ids_K, own_R[rows], success_K, prompts_K)
        once = prompt_R[rollouts.first_G].sum()
        spent = [len(rollouts), once, prompt_R.sum(), rollouts.lengths_R.sum()]
        self._spent = np.array(spent, dtype=np.float64)
        self._note(rollouts.reported)
        if budget is not None and rollouts.costs_R is not None:
            spent_now = float(rollouts.costs_R.sum()) + self._lost
            budget.learn(spent_now)
            if budget.in_a_row >= _PATIENCE:
                self._say(
                    "over",
                    "cost_per_step=%g cannot be kept: the last %d steps cost more, %g in the last "
                    "one, although cheap prompts are preferred as far as they may be. The "
                    "training goes on at this cost. Raise cost_per_step, or lower the number of "
                    "rollouts per step.",
                    budget.target,
                    _PATIENCE,
                    spent_now,
                )
        return metrics

    def _note(self, columns: Mapping[str, FloatArray]) -> None:
        """Notes which names are reported, and logs once what is missing."""
        for name in self.reports:
            missing = int(np.isnan(columns[name]).sum())
            if missing < len(columns[name]):
                self._reported.add(name)
            elif name not in self._reported:
                self._say(
                    name,
                    "cost=: none of the %d rollouts of this step reported %r, so it counts as 0 "
                    "until one does. With TRL, set it as an attribute of the environment, pass it "
                    "to log_extra in a reward function, or return it from rollout_func; in a loop "
                    "of your own, pass observe(costs_R=).",
                    missing,
                    name,
                )
            if missing > 0 and name in self._reported:
                self._say(
                    f"{name} of some",
                    "cost=: %d of %d rollouts reported no %r that is a number of at least 0. They "
                    "count with the cost that was expected of them. The metric cost/missing "
                    "counts them.",
                    missing,
                    len(columns[name]),
                    name,
                )

    def _say(self, once: str, text: str, *values: object) -> None:
        if not self.quiet and once not in self._said:
            logger.warning(text, *values)
        self._said.add(once)

    def state_dict(self) -> dict[str, Any]:
        """The expected lengths or costs, the prices of seconds, the names that were reported, and
        the budget."""
        state: dict[str, Any] = {"lengths": self.lengths.state_dict()}
        if isinstance(self.price, Seconds):
            state |= self.price.state_dict()
        if self.prices:
            known = {"prices": dict(self.prices), "known": sorted(self._reported)}
            state["costs/reported"] = known
        if (budget := self.budget) is not None:
            state["costs/budget"] = budget.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what was learned, if the state has it in the same unit."""
        saved = state.get("costs/reported")
        prices = saved.get("prices") if isinstance(saved, dict) else None
        if "lengths" not in state or (prices or {}) != self.prices:
            return  # nothing was learned, or in another unit
        if isinstance(self.price, Seconds) and "seconds" in state:
            self.price = loaded(self.price, state)
        self.lengths = loaded(self.lengths, state["lengths"])
        known = saved.get("known", ()) if isinstance(saved, dict) else ()
        self._reported = {name for name in self.reports if name in known}
        if self.budget is not None and "costs/budget" in state:
            self.budget = loaded(self.budget, state["costs/budget"])


def _prompts(rollouts: Rollouts) -> FloatArray:
    """The tokens of each rollout's prompt; 0 if the loop did not say."""
    lengths_R = rollouts.prompt_lengths_R
    return np.zeros(len(rollouts)) if lengths_R is None else lengths_R.astype(np.float64)
