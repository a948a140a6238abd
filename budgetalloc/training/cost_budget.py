"""A budget in cost: the mean cost of a step is kept by a price, while the number of rollouts
stays."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.contrib.pacing import DualPrice
from budgetalloc.errors import StateError, check_array

__all__ = ["CostBudget"]

logger = logging.getLogger(__name__)
_MOST = 4.0  # the highest price
# a rollout counts for at most so many times the mean cost, and for at least that part of it
_FACTOR = 16.0
_PATIENCE = 20  # steps in a row above the target at the highest price, before a warning


class CostBudget:
    """Keeps the mean cost of a step near a target, with as many rollouts as the trainer needs.

    Costs enter the decision as (cost / mean cost) ** price. The price starts at 1, where costs
    count as without a budget. It rises after a step that cost more than the target, and falls, not
    below 0, after a cheaper one (`DualPrice`). At 0 all rollouts count alike, and a run that still
    costs less than the target stays below it.

    The price is at most 4, and a rollout counts for 1/16 to 16 times the mean cost, so no prompt is
    starved. If steps still cost more than the target, they are counted, and one warning is logged
    after 20 of them in a row.

    Args:
        target: What a step may cost on average, in the unit of `cost=`, positive.
        quiet: Whether to suppress log messages, as in all processes but one.

    >>> budget = CostBudget(target=100.0, quiet=True)
    >>> budget.learn(180.0)
    >>> budget.described()
    {'cost/mean': 180.0, 'cost/target': 100.0, 'cost/price': 1.4, 'cost/over': 0.0}
    >>> budget.weighed(np.zeros(2), np.array([50.0, 150.0]))[1].round()  # further apart than they are
    array([ 38., 176.])
    """

    def __init__(self, target: float, quiet: bool = False) -> None:
        self.target, self.quiet = target, quiet
        self.dual = DualPrice(price=1.0, most=_MOST)
        self.spent, self.steps = 0.0, 0
        self.over = 0
        """Steps that cost more than the target although the price was at its highest."""
        self._in_a_row = 0

    def weighed(self, once_P: FloatArray, each_P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The costs that the decision weighs, from those of each prompt once a group and of one
        rollout."""
        mean = each_P.mean()
        relative_P = np.clip((each_P / mean) ** self.dual.price, 1 / _FACTOR, _FACTOR)
        return once_P * relative_P * mean / each_P, relative_P * mean

    def learn(self, spent: float) -> None:
        """Moves the price after a step that cost this much."""
        held = self.dual.price >= _MOST and spent > self.target
        self.over += held
        self._in_a_row = self._in_a_row + 1 if held else 0
        self.dual = self.dual.after(spent, self.target)
        self.spent, self.steps = self.spent + spent, self.steps + 1
        if self._in_a_row == _PATIENCE and not self.quiet:
            self.quiet = True
            logger.warning(
                "cost_per_step=%g cannot be kept: the last %d steps cost more, %g in the last one, "
                "although cheap "
                "prompts are preferred as far as they may be. The training goes on at this cost. "
                "Raise cost_per_step, "
                "or lower the number of rollouts per step.",
                self.target,
                _PATIENCE,
                spent,
            )

    def described(self) -> dict[str, float]:
        """The metrics `cost/mean`, a step's mean cost so far, `cost/target`, `cost/price` and
        `cost/over`."""
        mean = {"cost/mean": self.spent / self.steps} if self.steps else {}
        return mean | {
            "cost/target": self.target,
            "cost/price": self.dual.price,
            "cost/over": float(self.over),
        }

    def state_dict(self) -> dict[str, Any]:
        """The price and the sums."""
        numbers = [
            self.dual.price,
            self.spent,
            float(self.steps),
            float(self.over),
            float(self._in_a_row),
        ]
        return {"costs/budget": np.array(numbers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`, if the state has it; raises `StateError`, and changes nothing,
        if it is damaged."""
        if "costs/budget" not in state:
            return
        numbers = check_array("costs/budget", state["costs/budget"], "five numbers of at least 0")
        if (
            numbers.shape != (5,)
            or not (np.isfinite(numbers) & (numbers >= 0)).all()
            or numbers[0] > _MOST
        ):
            raise StateError(
                "The state holds no budget in cost: it is damaged. Resume from another checkpoint."
            )
        self.dual = DualPrice(price=float(numbers[0]), most=_MOST)
        self.spent, self.steps = float(numbers[1]), int(numbers[2])
        self.over, self._in_a_row = int(numbers[3]), int(numbers[4])
