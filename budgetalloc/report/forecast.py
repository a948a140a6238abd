"""How well the success of each rollout was predicted before its step; the prediction error is the learning signal."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import FloatArray

Ints = NDArray[np.int64]
BELIEF = "Beta(0.5, 0.5), discount 0.9 a visit"
BINS = 100  # of the prediction
NEAR = 0.1  # a success within this distance of the prediction is as expected


def report_estimator() -> BetaEstimator:
    """The estimator of the beliefs used for forecasts: `BELIEF`, the default of `knapsack()`."""
    return BetaEstimator(discount=0.9)


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predicted and observed success of all scored rollouts; B are equal bins of the prediction, from 0 to 1.

    The prediction is that of the log, if it has one, as a ledger does, and otherwise that of the report's own belief.
    Under a baseline from earlier steps, such as that of `adaptive()`, success less prediction is the advantage.

    Args:
        rollouts_B, predicted_B, success_B: Rollouts in each bin, the sum of their predictions and of their success.
        squared: Sum of (success - prediction)^2.
        surprises: Sum of |success - prediction|.
        squares: Sum of success^2.
        logged: Rollouts whose prediction the log has.

    >>> two = np.array([1, 1])
    >>> forecast = Forecast(two, np.array([0.25, 0.75]), np.array([0, 1]), 0.125, 0.5, 1, 0)
    >>> forecast.brier, forecast.constant, forecast.explained, forecast.surprise
    (0.0625, 0.25, 0.75, 0.25)
    """

    rollouts_B: Ints
    predicted_B: FloatArray
    success_B: FloatArray
    squared: float
    surprises: float
    squares: float
    logged: int

    @property
    def rollouts(self) -> int:
        return int(self.rollouts_B.sum())

    @property
    def brier(self) -> float:
        """Mean squared error of the prediction."""
        return share(self.squared, self.rollouts)

    @property
    def constant(self) -> float:
        """The Brier score of the best constant prediction: the variance of success."""
        return max(share(self.squares, self.rollouts) - share(float(self.success_B.sum()), self.rollouts) ** 2, 0.0)

    @property
    def explained(self) -> float:
        """The share of the variance of success that the prediction explains; below 0, the constant is better.

        NaN if every rollout had the same success.
        """
        return 1 - share(self.brier, self.constant if self.constant > 1e-12 else 0.0)

    @property
    def surprise(self) -> float:
        """Mean |success - prediction|."""
        return share(self.surprises, self.rollouts)

    def deciles(self) -> list[dict[str, float]]:
        """`rollouts`, mean `predicted` and mean `success` in tenths of the prediction, empty ones left out."""
        columns: Mapping[str, FloatArray] = {"predicted": self.predicted_B, "success": self.success_B}
        return tenths("rollouts", self.rollouts_B, columns)


def expected(success_R: FloatArray, predicted_R: FloatArray) -> NDArray[np.bool_]:
    """Which rollouts had the success that was predicted, to within `NEAR`.

    >>> expected(np.array([0.0, 0.0, 1.0]), np.array([0.1, 0.2, 0.95]))
    array([ True, False,  True])
    """
    return np.asarray(np.abs(success_R - predicted_R) <= NEAR + 1e-9)


def tenths(name: str, number_B: Ints, sums_B: Mapping[str, FloatArray]) -> list[dict[str, float]]:
    """Bins in tenths: how many there are, under `name`, and the mean of each column; empty tenths are left out."""
    rows = []
    for at in np.array_split(np.arange(BINS), 10):
        number = int(number_B[at].sum())
        if number:
            rows.append({name: number} | {key: float(column[at].sum()) / number for key, column in sums_B.items()})
    return rows


def bin_of(p_G: FloatArray) -> Ints:
    return np.minimum((p_G * BINS + 1e-9).astype(np.int64), BINS - 1)


def share(part: float, whole: float) -> float:
    """part / whole, NaN for a whole of 0."""
    return float(part / whole) if whole else float("nan")
