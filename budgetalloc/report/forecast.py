"""How well the success of each rollout was predicted before its step; the prediction error is the
learning signal."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import FloatArray

__all__ = ["BELIEF", "BINS", "NEAR", "Forecast", "share"]

BELIEF = "Beta(0.5, 0.5), discount 0.9 a visit"
BINS = 100  # of the prediction
NEAR = 0.1  # a success within this distance of the prediction is as predicted


@dataclass(frozen=True, eq=False)
class Forecast:
    """Sums over rollouts of their predicted and observed success. B: equal bins of the prediction,
    from 0 to 1.

    The prediction is that of the log, if it has one, as a ledger does, and otherwise that of the
    report's own belief. Under a baseline from earlier steps, such as that of `adaptive()`, success
    minus prediction is the advantage.

    Args:
        rollouts_B, predicted_B, success_B: Rollouts in each bin, the sum of their predictions and
            of their success.
        squared: Sum of (success - prediction)^2.
        surprises: Sum of |success - prediction|.
        squares: Sum of success^2.
        logged: Rollouts whose prediction the log has.

    >>> forecast = Forecast.of(np.array([0.0, 1.0]), np.array([0.25, 0.75]), logged=0)
    >>> forecast.brier, forecast.constant, forecast.explained, forecast.surprise
    (0.0625, 0.25, 0.75, 0.25)
    """

    rollouts_B: NDArray[np.int64]
    predicted_B: FloatArray
    success_B: FloatArray
    squared: float
    surprises: float
    squares: float
    logged: int

    @classmethod
    def of(cls, success_R: FloatArray, predicted_R: FloatArray, logged: int) -> "Forecast":
        """The sums over these rollouts, of which `logged` have a prediction in the log."""
        bin_R = np.minimum((predicted_R * BINS + 1e-9).astype(np.int64), BINS - 1)
        error_R = success_R - predicted_R
        return cls(
            rollouts_B=np.bincount(bin_R, minlength=BINS),
            predicted_B=np.bincount(bin_R, weights=predicted_R, minlength=BINS).astype(np.float64),
            success_B=np.bincount(bin_R, weights=success_R, minlength=BINS).astype(np.float64),
            squared=float((error_R**2).sum()),
            surprises=float(np.abs(error_R).sum()),
            squares=float((success_R**2).sum()),
            logged=logged,
        )

    def __add__(self, other: "Forecast") -> "Forecast":
        return Forecast(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )

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
        return max(
            share(self.squares, self.rollouts)
            - share(float(self.success_B.sum()), self.rollouts) ** 2,
            0.0,
        )

    @property
    def explained(self) -> float:
        """The share of the variance of success that the prediction explains; below 0, the constant
        is better.

        NaN if every rollout had the same success.
        """
        return 1 - share(self.brier, self.constant if self.constant > 1e-12 else 0.0)

    @property
    def surprise(self) -> float:
        """Mean |success - prediction|."""
        return share(self.surprises, self.rollouts)

    def deciles(self) -> list[dict[str, float]]:
        """`rollouts`, mean `predicted` and mean `success` in tenths of the prediction, without
        empty ones."""
        sums_B = self.rollouts_B, self.predicted_B, self.success_B
        tenths = zip(*(sum_B.reshape(10, -1).sum(axis=1).tolist() for sum_B in sums_B), strict=True)
        return [
            {"rollouts": n, "predicted": p / n, "success": passed / n}
            for n, p, passed in tenths
            if n
        ]


def share(part: float, whole: float) -> float:
    """part / whole, NaN for a whole of 0."""
    return float(part / whole) if whole else float("nan")
