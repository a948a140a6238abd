"""The cost of a rollout as a weighted sum of what its environment or reward function reports."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_number, nearest, shown

__all__ = ["LEAST", "TOKENS", "ReportedCosts", "check_prices"]

logger = logging.getLogger(__name__)
TOKENS = "tokens"
"""The name of a rollout's own tokens in `cost=`, which need no report."""
LEAST = 1e-9
"""The lowest cost of a rollout that reported 0."""


def check_prices(prices: Mapping[Any, Any]) -> dict[str, float]:
    """The prices by name. Raises `InputError` unless names are texts, and prices at least 0 and not
    all 0.

    >>> check_prices({"tokens": 1, "turns": 50})
    {'tokens': 1.0, 'turns': 50.0}
    """
    for name in prices:
        if not isinstance(name, str) or not name:
            raise InputError(
                f'cost={shown(dict(prices))}: {shown(name)} is not a name. Use texts such as "turns".'
            )
    checked = {
        name: check_number(f"cost[{name!r}]", price, 0, math.inf) for name, price in prices.items()
    }
    if not any(checked.values()):
        raise InputError(
            f'cost={shown(dict(prices))}: no price is above 0. Use prices such as {{"tokens": 1, "turns": 50}}.'
        )
    return checked


class ReportedCosts:
    """Weighs what rollouts report. A rollout without a report has the cost NaN, which `Costs` fills
    by its expectation.

    A name that nothing has reported yet counts as 0, so costs are tokens only until a report comes.
    What is missing is counted and logged once, and never ends a run.

    Args:
        prices: The price of one unit of each name; `TOKENS` are the rollout's own tokens.
        quiet: Whether to suppress log messages, as in all processes but one.

    >>> reported = ReportedCosts({"tokens": 1.0, "turns": 50.0}, quiet=True)
    >>> columns = reported.columns({"turns": [2, None]}, rows=2)
    >>> reported.of(np.array([100, 400]), columns)
    array([200.,  nan])
    """

    def __init__(self, prices: Mapping[str, float], quiet: bool = False) -> None:
        self.prices, self.quiet = check_prices(prices), quiet
        self.names = tuple(name for name in self.prices if name != TOKENS)
        """What is to be reported."""
        self._known: set[str] = set()
        self._said: set[str] = set()

    def columns(
        self, given: Mapping[str, Sequence[Any] | ArrayLike] | ArrayLike | None, rows: int
    ) -> dict[str, Any]:
        """The reports by name, shape (R,) each, NaN where a report is missing, negative, infinite
        or no number.

        Args:
            given: The reports by name, or one column if `names` has one entry. A name left out is
                missing everywhere.
            rows: The number of rollouts, R.

        Raises:
            InputError: an unknown name, a column of another length, or one column for several
                names.
        """
        if given is None:
            given = {}
        if not isinstance(given, Mapping):
            if len(self.names) != 1:
                raise InputError(
                    f"costs_R is one column, and cost= has {list(self.names)}: give a column by "
                    "name."
                )
            given = {self.names[0]: given}
        for name, column in given.items():
            if name not in self.names:
                use = f"Use {list(self.names)}, or add its price to cost=."
                raise InputError(f"costs_R[{name!r}] has no price{nearest(name, self.names)} {use}")
            if np.ndim(column) != 1 or len(column) != rows:  # type: ignore[arg-type]
                raise InputError(
                    f"costs_R[{name!r}]={shown(column)}: give a number for each of the {rows} "
                    "rollouts."
                )
        return {name: _numbers(given.get(name, [None] * rows)) for name in self.names}

    def of(self, lengths_R: IntArray, columns: Mapping[str, FloatArray]) -> FloatArray:
        """The cost of each rollout without its prompt, NaN if a report is missing, shape (R,)."""
        costs_R = self.prices.get(TOKENS, 0.0) * np.maximum(lengths_R, 1).astype(np.float64)
        for name, column_R in columns.items():
            if name in self._known or not np.isnan(column_R).all():
                costs_R = costs_R + self.prices[name] * column_R
        return np.maximum(costs_R, LEAST)  # NaN stays NaN

    def price(self, prompt_P: FloatArray, cost_P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As `Price`: the tokens of a prompt are paid once a group; rollouts have their costs
        already."""
        return self.prices.get(TOKENS, 0.0) * prompt_P, cost_P

    def learn(self, columns: Mapping[str, FloatArray]) -> None:
        """Notes which names are reported, and logs once what is missing."""
        for name, column_R in columns.items():
            missing = int(np.isnan(column_R).sum())
            if missing < len(column_R):
                self._known.add(name)
            elif name not in self._known:
                self._say(
                    name,
                    "cost=: none of the %d rollouts of this step reported %r, so it counts as 0 "
                    "until one does. With "
                    "TRL, set it as an attribute of the environment, pass it to log_extra in a "
                    "reward function, or "
                    "return it from rollout_func; in a loop of your own, pass observe(costs_R=).",
                    missing,
                    name,
                )
            if missing > 0 and name in self._known:
                self._say(
                    f"{name} of some",
                    "cost=: %d of %d rollouts reported no %r that is a number of at least 0. They "
                    "count with the cost "
                    "that was expected of them. The metric cost/missing counts them.",
                    missing,
                    len(column_R),
                    name,
                )

    def _say(self, once: str, text: str, *values: object) -> None:
        if not self.quiet and once not in self._said:
            logger.warning(text, *values)
        self._said.add(once)

    def state_dict(self) -> dict[str, Any]:
        """The prices, which are the unit of the learned costs, and the names that were reported."""
        return {"costs/reported": {"prices": dict(self.prices), "known": sorted(self._known)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of the same prices."""
        self._known = {
            name for name in self.names if name in state["costs/reported"].get("known", ())
        }


def _numbers(column: Any) -> FloatArray:
    return np.array([_number(value) for value in column], dtype=np.float64)


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if 0 <= number < math.inf else math.nan
