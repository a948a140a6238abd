"""What rollouts cost: lengths, reports and prices, learned from every step."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.lengths import Lengths
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, UnsupportedError, check_number, shown
from budgetalloc.policies import Policy
from budgetalloc.policies.costs.prices import Price, Seconds, tokens
from budgetalloc.policies.interface import CostOf
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.solvers.interface import check_group_costs
from budgetalloc.training.cost_budget import CostBudget
from budgetalloc.training.reported_costs import LEAST, ReportedCosts, check_prices

__all__ = ["Clock", "Cost", "Costs", "Kind", "check_cost", "check_cost_per_step"]

logger = logging.getLogger(__name__)
_FLAT = 10  # steps in a row
Kind = Literal["tokens", "seconds"]
Cost = Kind | Mapping[str, float] | Price | None
"""What a rollout costs: tokens, seconds, prices of what it reports by name (`ReportedCosts`), or a function of the
tokens of prompts and of their answers (`Price`)."""


def check_cost(cost: Any) -> None:
    """Raises `InputError` unless this is a `Cost`."""
    if isinstance(cost, Mapping):
        check_prices(cost)
    elif (
        cost is not None
        and not callable(cost)
        and not (isinstance(cost, str) and cost in get_args(Kind))
    ):
        raise InputError(
            f"cost={shown(cost)}: use 'tokens', 'seconds', prices by name such as "
            f"{{'tokens': 1, 'turns': 50}}, or a "
            "function of two arrays, the tokens of each prompt and of its expected answer, that "
            "returns the cost of "
            "each prompt once a group and that of one rollout.",
            argument="cost",
        )


def check_cost_per_step(cost_per_step: Any, cost: Any) -> float | None:
    """The target as a float, or None. Raises `InputError` unless it is positive and `cost` has a
    fixed unit."""
    if cost_per_step is None:
        return None
    target = check_number("cost_per_step", cost_per_step, 0, math.inf, without=(0,))
    if cost is None or cost == "seconds":
        raise InputError(
            f"cost_per_step={target:g} with cost={cost!r}: it is in the unit of cost=, which must "
            "be fixed. Use "
            "cost='tokens', or prices by name such as {'tokens': 1, 'turns': 50}.",
            argument="cost_per_step",
        )
    return target


class Clock:
    """A stopwatch with laps, which can be stopped and restarted within a lap.

    >>> clock = Clock(iter([0.0, 7.0, 10.0, 14.0, 19.0]).__next__)
    >>> clock.go(); clock.stop(); clock.go(); clock.lap(); clock.stop(); clock.lap()  # 0 to 7 and 10 to 14; 14 to 19
    11.0
    5.0
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._since: float | None = None  # None while it is stopped
        self._seconds = 0.0

    @property
    def running(self) -> bool:
        """Whether the clock runs."""
        return self._since is not None

    def go(self) -> None:
        """Starts the clock, unless it runs."""
        if self._since is None:
            self._since = self._now()

    def stop(self) -> None:
        """Stops the clock, if it runs."""
        if self._since is not None:
            self._seconds += self._now() - self._since
        self._since = None

    def lap(self) -> float:
        """The seconds that the clock ran since the last lap; it goes on running."""
        if self._since is not None:
            now = self._now()
            self._seconds, self._since = self._seconds + now - self._since, now
        seconds, self._seconds = self._seconds, 0.0
        return seconds


@dataclass(eq=False)
class Costs:
    """What the rollouts of a training cost, learned from its steps.

    Args:
        price: The cost of prompts and answers by their lengths; `Seconds` learns it. None: costs do
            not matter, and nothing is learned.
        lengths: The expected length of each prompt's answers.
        clock: Measures the steps, for `Seconds`. The adapter runs it only during the trainer's own
            work.
        quiet: Whether to suppress log messages, as in all processes but one.
        reported: Weighs what rollouts report; `lengths` then has their costs in place of their
            tokens. None if costs follow from tokens.
        budget: Keeps the mean cost of a step, or None.
    """

    price: Price | None
    lengths: Lengths = field(default_factory=Lengths)
    clock: Clock = field(default_factory=Clock)
    quiet: bool = False
    reported: ReportedCosts | None = None
    budget: CostBudget | None = None
    _spent: FloatArray | None = None  # rollouts and tokens since the last lap
    _warm: bool = False  # the first lap includes compiling and warming up
    _flat: int = 0  # steps in a row in which a token of an answer had no price

    @classmethod
    def of(
        cls, cost: Cost, policy: Policy, quiet: bool = False, cost_per_step: float | None = None
    ) -> "Costs":
        """Costs of this kind, before anything is learned; raises `UnsupportedError` if the policy
        ignores costs."""
        if cost is not None and not policy.needs.costs:
            raise UnsupportedError(
                f"cost={shown(cost)}: {policy} does not weigh costs. Use ba.adaptive(), "
                "policies.sampled(), "
                "ba.knapsack() or ba.thompson(); a policy of yours that reads View.priced says so "
                "by Needs(costs=True)."
            )
        budget = None if cost_per_step is None else CostBudget(cost_per_step, quiet)
        if isinstance(cost, Mapping):
            reported = ReportedCosts(cost, quiet)
            return cls(
                reported.price, Lengths(LEAST), quiet=quiet, reported=reported, budget=budget
            )
        if cost is None or callable(cost):
            return cls(cost, quiet=quiet, budget=budget)
        return cls(tokens if cost == "tokens" else Seconds(), quiet=quiet, budget=budget)

    @property
    def of_step(self) -> CostOf | None:
        """The costs for `Policy.begin`."""
        return None if self.price is None else self.weighed

    def weighed(self, ids_P: Sequence[Id], belief_P: Beta) -> tuple[FloatArray, FloatArray]:
        """The costs that a decision weighs: the expected ones, at the price of the budget if there
        is one."""
        costs = self.expected(ids_P, belief_P)
        return costs if self.budget is None else self.budget.weighed(*costs)

    def columns(self, given: Any, rows: int) -> dict[str, FloatArray]:
        """What rollouts reported, by name (`ReportedCosts.columns`); raises `InputError` if nothing
        is to be."""
        if self.reported is not None:
            return self.reported.columns(given, rows)
        if given is not None:
            raise InputError(
                'costs_R is given, and cost= has no prices by name: pass cost={"turns": 50}, for example.'
            )
        return {}

    def expected(self, ids_P: Sequence[Id], belief_P: Beta) -> tuple[FloatArray, FloatArray]:
        """The expected cost of each prompt once a group, and of one rollout, shape (P,) each."""
        assert self.price is not None
        return check_group_costs(
            self.price(*self.lengths.expected(ids_P, belief_P.mean)), len(ids_P)
        )

    def restart(self) -> None:
        """Forgets what was measured since the last decision, when a training begins."""
        self.clock.stop()
        self.clock.lap()
        self._spent, self._warm = None, False

    def begin(self) -> None:
        """Learns what the rollouts since the last decision cost; called before the next
        decision."""
        took, spent = self.clock.lap(), self._spent
        self._spent = None
        if not isinstance(self.price, Seconds) or spent is None:
            return
        if not self._warm:
            self._warm = True
            return
        self.price.learn(spent, took)
        self._flat = self._flat + 1 if self.price.at_bound[-1] else 0
        if self._flat == _FLAT and not self.quiet:
            self.quiet = True
            logger.warning(
                "cost='seconds': the seconds of the last %d steps did not depend on how long the "
                "answers were. Long "
                "and short answers are therefore taken to cost the same. This happens if a step "
                "waits for the longest "
                "answer, or if all answers have about the same length. cost='tokens' charges for "
                "length nevertheless.",
                _FLAT,
            )

    def paid(self, batch: Rollouts) -> FloatArray | None:
        """The cost of each rollout, `Rollouts.costs_R`; None without costs and for seconds, whose
        prices change."""
        return (
            None
            if self.price is None or isinstance(self.price, Seconds)
            else self._paid(self.price, batch)
        )

    def _own(self, batch: Rollouts) -> FloatArray:
        """What `lengths` learns of each rollout: its cost without the prompt, NaN if not reported,
        or its tokens."""
        if self.reported is not None:
            return self.reported.of(batch.lengths_R, batch.reported)
        return np.maximum(batch.lengths_R, 1).astype(np.float64)

    def _paid(self, price: Price, batch: Rollouts) -> FloatArray:
        once_R, each_R = price(_prompts(batch).astype(np.float64), self._own(batch))
        if (missing_R := np.isnan(each_R)).any():
            each_R = np.where(missing_R, self.expected(batch.ids_R, batch.belief_R)[1], each_R)
        return np.asarray(each_R + once_R / batch.counts_R)

    def lost(self, ids_R: Sequence[Id], belief_R: Beta) -> float:
        """The expected cost of rollouts that were generated and never came, without their
        prompts."""
        return (
            0.0
            if self.price is None or not ids_R
            else float(self.expected(ids_R, belief_R)[1].sum())
        )

    def learn(self, batch: Rollouts, lost: float = 0.0) -> None:
        """Learns the costs of a step's rollouts, except rollouts with a hint, which have another
        prompt; `lost` is charged to the budget."""
        if self.price is None:
            return
        own_R, prompt_R = self._own(batch), _prompts(batch)
        rows = np.flatnonzero(~batch.hinted_R & ~np.isnan(own_R))
        ids_K = [batch.ids_R[at] for at in rows.tolist()]
        self.lengths.observe(ids_K, own_R[rows], batch.success_R[rows], prompt_R[rows])
        once = prompt_R[batch.first_G].sum()
        self._spent = np.array(
            [len(batch), once, prompt_R.sum(), batch.lengths_R.sum()], dtype=np.float64
        )
        if self.reported is not None:
            self.reported.learn(batch.reported)
        if self.budget is not None and batch.costs_R is not None:
            self.budget.learn(float(batch.costs_R.sum()) + lost)

    def described(self, batch: Rollouts) -> dict[str, float]:
        """Metrics of a step, before learning from it: the mean cost of a rollout, by its expected
        (`cost/expected`) and by its real lengths or reports (`cost/rollout`) at the same prices.
        With learned prices also `cost/at_bound`, the number of the four prices that are at their
        lower bound; with reports `cost/missing`, the rollouts without one; with a budget what
        `CostBudget.described` returns."""
        if self.price is None:
            return {}
        once_R, each_R = self.expected(batch.ids_R, batch.belief_R)
        metrics = {
            "cost/expected": float((once_R[batch.first_G].sum() + each_R.sum()) / len(batch)),
            "cost/rollout": float(self._paid(self.price, batch).mean()),
        }
        if isinstance(self.price, Seconds):
            metrics["cost/at_bound"] = float(self.price.at_bound.sum())
        if self.reported is not None:
            metrics["cost/missing"] = float(np.isnan(self._own(batch)).sum())
        return metrics | ({} if self.budget is None else self.budget.described())

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, to be saved with the policy's state."""
        if self.price is None:
            return {}
        parts = (
            self.price if isinstance(self.price, Seconds) else None,
            self.reported,
            self.budget,
        )
        state: dict[str, Any] = {"lengths": self.lengths.state_dict()}
        for part in parts:
            state |= {} if part is None else part.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what was learned, if the state has it in the same unit; raises `StateError` if
        it is damaged."""
        if self.price is None or "lengths" not in state:
            return
        saved = state.get("costs/reported")
        prices = saved.get("prices") if isinstance(saved, dict) else None
        if prices != (None if self.reported is None else self.reported.prices):
            return  # the costs were learned in another unit
        if isinstance(self.price, Seconds) and "seconds" in state:
            self.price.load_state_dict(state)
        self.lengths.load_state_dict(state["lengths"])
        for part in (self.reported, self.budget):
            if part is not None:
                part.load_state_dict(state)


def _prompts(batch: Rollouts) -> IntArray:
    """The tokens of each rollout's prompt; 0 if the loop did not say."""
    return (
        np.zeros(len(batch), dtype=np.int64)
        if batch.prompt_lengths_R is None
        else batch.prompt_lengths_R
    )
