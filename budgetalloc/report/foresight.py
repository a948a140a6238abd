"""Whether wasted groups could be predicted: forecasts made before each group, and their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Beta, FloatArray

Ints = NDArray[np.int64]
BELIEF = "Beta(0.5, 0.5), discount 0.9 a visit"
SURE = 0.9  # from this probability on, a group counts as foreseen
BINS = 100  # of the predicted probability


def believer() -> BetaEstimator:
    """The estimator of the beliefs used for forecasts: `BELIEF`, the default of `knapsack()`."""
    return BetaEstimator(discount=0.9)


@dataclass(frozen=True, eq=False)
class Foresight:
    """How well the belief before each step predicted which groups of the step were wasted.

    A group of n is wasted if its rewards are equal; the predicted probability is E[p^n] + E[(1-p)^n] under the prompt's
    belief. B are equal bins of the predicted probability, from 0 to 1. Prompts at their first visit are *cold*, and
    counted separately.

    Args:
        groups_B, wasted_B: Groups in each bin, and how many of them were wasted; shape (B,).
        predicted_B: The sum of their predicted probabilities.
        rollouts_B, wasted_rollouts_B: The same in rollouts.
        brier: Mean squared error of the prediction, over groups that are not cold; NaN where all are.
        log_loss: Mean negative log-likelihood of the outcomes, in nats.
        cold_groups, cold_wasted, cold_wasted_rollouts: The same for prompts at their first visit.
    """

    groups_B: Ints
    wasted_B: Ints
    predicted_B: FloatArray
    rollouts_B: Ints
    wasted_rollouts_B: Ints
    brier: float
    log_loss: float
    cold_groups: int
    cold_wasted: int
    cold_wasted_rollouts: int

    @property
    def groups(self) -> int:
        """Groups predicted."""
        return int(self.groups_B.sum())

    @property
    def base(self) -> float:
        """The share of the predicted groups that was wasted: the best constant forecast, known only afterwards."""
        return share(self.wasted_B.sum(), self.groups)

    @property
    def skill(self) -> float:
        """1 - Brier score / Brier score of the best constant forecast: 0 no better, 1 perfect. NaN if undefined."""
        return 1 - share(self.brier, self.base * (1 - self.base))

    @property
    def auc(self) -> float:
        """The chance that a wasted group had a higher prediction than one that was not; ties within a bin count half.

        >>> foresight = Foresight(np.array([2, 2]), np.array([0, 2]), *[np.zeros(2)] * 3, 0.1, 0.3, 0, 0, 0)
        >>> foresight.auc
        1.0
        """
        mixed_B = self.groups_B - self.wasted_B
        below_B = np.cumsum(mixed_B) - mixed_B
        return share((self.wasted_B * (below_B + mixed_B / 2)).sum(), self.wasted_B.sum() * mixed_B.sum())

    def deciles(self) -> list[dict[str, float]]:
        """`groups`, mean `predicted` and `wasted` share in tenths of the predicted probability, empty ones left out."""
        return tenths("groups", self.groups_B, {"predicted": self.predicted_B, "wasted": self.wasted_B})

    def called(self, sure: float = SURE) -> dict[str, float]:
        """Groups predicted to be wasted with at least this probability: how many, how many were, and their rollouts."""
        sums = (self.groups_B, self.wasted_B, self.rollouts_B, self.wasted_rollouts_B)
        groups, wasted, rollouts, wasted_rollouts = (int(x[bin_of(np.array([sure]))[0] :].sum()) for x in sums)
        return {"groups": groups, "wasted": wasted, "rollouts": rollouts, "wasted_rollouts": wasted_rollouts}


def equal_chance(belief: Beta, counts_P: Sequence[int] | Ints) -> FloatArray:
    """E[p^n] + E[(1-p)^n] with each prompt's own n: the chance that its rewards are all equal, shape (P,).

    >>> equal_chance(Beta([1.0, 1.0], [1.0, 1.0]), [1, 2])
    array([1.        , 0.66666667])
    """
    n_P = np.asarray(counts_P, dtype=np.int64)
    chance_P = np.ones(len(n_P))
    for n in np.unique(n_P).tolist():
        of_n = np.flatnonzero(n_P == n)
        believed = belief.take(of_n)
        chance_P[of_n] = (believed.all_pass([n]) + believed.all_fail([n]))[:, 0]
    return chance_P


def tenths(name: str, number_B: Ints, sums_B: Mapping[str, FloatArray | Ints]) -> list[dict[str, float]]:
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
