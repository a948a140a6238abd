"""Finds a reward function that scores the same prompts lower than before, while the others do not."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.pool import Index, with_room
from budgetalloc.beliefs.posterior import FloatArray

__all__ = ["ScoreDrift"]

_BLOCK = 8  # steps of a block
_LEVEL = 1e-4  # of the test between two blocks
_AGREE = 0.05  # level of the test of the other functions
_LEAST = 0.25  # the smallest fall that is reported, in standard deviations of the scores
_KEPT, _POOL_KEPT = 0.9, 0.98  # weight of earlier scores of a prompt at a visit, and of the pool at a step
_FEWEST = 8  # rollouts of known prompts that a step needs


class ScoreDrift:
    """Compares the scores of prompts with what the same prompts got before.

    Each score is compared with its prompt's earlier mean, shrunk to the pool's mean by the weight of one rollout, as a
    policy may return to prompts because of their scores. A step has the mean difference of its known prompts. Every 8
    steps, a t test compares the last 8 means with 8 earlier ones; the 8 in between are left out, because a change in
    the middle of a block would look like noise. Drift of a function is reported if

    - its differences fell, against the sign of its weight, at level 1e-4 (one-sided);
    - the last ones are below 0 (level 1e-4), and fell by at least 0.25 standard deviations of its scores;
    - the weighted sum of the other functions did not shift (level 0.05, two-sided), nor rise as much.

    In steps that are alike, a test is a false alarm with probability 1e-4 at most. A rise is never reported: training
    raises rewards. A fall that other rewards pay for, as of a length penalty when answers improve, is not either.

    Args:
        weights: The weight of each function in the total reward.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights_F = np.asarray(weights, dtype=np.float64)
        functions = len(self.weights_F)
        self.fall_F = np.full(functions, np.nan)
        """The fall at the last test, in standard deviations, NaN before the first one, shape (F,)."""
        self._index = Index()
        self._weight_PF: FloatArray = np.zeros((0, functions))
        self._sum_PF: FloatArray = np.zeros((0, functions))
        self._pool_3F: FloatArray = np.zeros((3, functions))  # faded number, sum and squares of all scores
        self._own: list[FloatArray] = []  # mean difference of each step, shape (F,), in standard deviations
        self._others: list[FloatArray] = []  # of the weighted sum of the other functions, in the total's units

    def add(self, ids_R: Sequence[Id], scores_RF: FloatArray) -> list[int]:
        """Adds a step, shape (R, F), NaN for no score. Returns the functions that drifted, at every eighth step."""
        ids_P, group_R = factorize(ids_R)
        at_P = self._index.add(ids_P)
        self._weight_PF, self._sum_PF = (with_room(x, len(self._index)) for x in (self._weight_PF, self._sum_PF))
        known_RF, given_RF = self._weight_PF[at_P[group_R]] > 0, ~np.isnan(scores_RF)
        self._compare(scores_RF, known_RF & given_RF, at_P[group_R])
        filled_RF = np.where(given_RF, scores_RF, 0.0)
        for sums_PF, each_RF in ((self._weight_PF, given_RF), (self._sum_PF, filled_RF)):
            new_PF = np.zeros((len(ids_P), len(self.weights_F)))
            np.add.at(new_PF, group_R, each_RF)
            sums_PF[at_P] = _KEPT * sums_PF[at_P] + new_PF
        step_3F = np.stack([given_RF.sum(axis=0), filled_RF.sum(axis=0), (filled_RF**2).sum(axis=0)])
        self._pool_3F = _POOL_KEPT * self._pool_3F + step_3F
        if len(self._own) < 3 * _BLOCK:
            return []
        drifted = [f for f in range(len(self.weights_F)) if self._drifted(f)]
        self._own, self._others = self._own[_BLOCK:], self._others[_BLOCK:]
        return drifted

    def _compare(self, scores_RF: FloatArray, usable_RF: np.ndarray, at_R: np.ndarray) -> None:
        """Adds the step's mean differences, NaN for a function with too few known prompts."""
        number_F, sum_F, square_F = self._pool_3F
        if not number_F.any():
            return
        mean_F = sum_F / np.maximum(number_F, 1)
        deviation_F = np.sqrt(np.maximum(square_F / np.maximum(number_F, 1) - mean_F**2, 0.0))
        expected_RF = (mean_F + self._sum_PF[at_R]) / (1 + self._weight_PF[at_R])
        difference_RF = np.where(usable_RF, scores_RF - expected_RF, 0.0)
        count_F = usable_RF.sum(axis=0)
        own_F = difference_RF.sum(axis=0) / np.maximum(count_F, 1)
        weighted_F = own_F * self.weights_F
        enough_F = (count_F >= _FEWEST) & (deviation_F > 0)
        self._own.append(np.where(enough_F, own_F / np.where(deviation_F > 0, deviation_F, 1.0), np.nan))
        self._others.append(weighted_F.sum() - weighted_F)
        self._deviation_F = deviation_F

    def _drifted(self, f: int) -> bool:
        weight, others_F = self.weights_F[f], np.delete(self.weights_F, f)
        own_S = np.sign(weight) * np.array([each_F[f] for each_F in self._own])
        before, after = own_S[:_BLOCK], own_S[-_BLOCK:]
        if np.isnan(own_S).any():
            return False
        self.fall_F[f] = fall = before.mean() - after.mean()
        if weight == 0 or not others_F.any() or fall < _LEAST:
            return False
        other_S = np.array([each_F[f] for each_F in self._others])
        rise = other_S[-_BLOCK:].mean() - other_S[:_BLOCK].mean()
        paid_for = rise >= abs(weight) * self._deviation_F[f] * fall
        steady = 2 * _tail(abs(_t(other_S[-_BLOCK:], other_S[:_BLOCK])), 2 * _BLOCK - 2) > _AGREE
        fell = _tail(_t(before, after), 2 * _BLOCK - 2) < _LEVEL
        below = _tail(_t(np.zeros(1), after), _BLOCK - 1) < _LEVEL
        return bool(fell and below and steady and not paid_for)


def _t(one: FloatArray, other: FloatArray) -> float:
    """Student's t of the difference of two means, with a common variance; a single value counts as known."""
    freedom = len(one) + len(other) - 2 if len(one) > 1 else len(other) - 1
    square = ((one - one.mean()) ** 2).sum() + ((other - other.mean()) ** 2).sum()
    share = (1 / len(one) if len(one) > 1 else 0.0) + 1 / len(other)
    difference = float(one.mean() - other.mean())
    return difference / float(np.sqrt(max(square / freedom * share, 1e-30)))


def _tail(t: float, freedom: int) -> float:
    """The probability of a larger t."""
    from scipy.special import stdtr  # deferred: slow to import

    return float(stdtr(freedom, -t))
