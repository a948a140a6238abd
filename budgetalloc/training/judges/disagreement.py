"""Finds a reward function that scores the same completion of the same prompt differently."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import unequal

__all__ = ["Disagreement"]

_REMEMBERED = 20_000  # completions


class Disagreement:
    """Repeated completions, and how often their scores differ from the last ones. The last 20,000 are remembered.

    A function of the prompt and the completion alone never differs.

    Args:
        functions: The number of reward functions, F.

    >>> seen = Disagreement(1)
    >>> seen.add(["a", "a", "b"], ["4", "4", "4"], np.array([[1.0], [0.5], [1.0]]))
    >>> seen.repeats_F, seen.share_F, seen.difference_F
    (array([1.]), array([1.]), array([0.5]))
    """

    def __init__(self, functions: int) -> None:
        self._scores: OrderedDict[tuple[Id, Hashable], FloatArray] = OrderedDict()
        self.repeats_F: FloatArray = np.zeros(functions)
        """Completions that were scored again, shape (F,)."""
        self._differ_F: FloatArray = np.zeros(functions)
        self._total_F: FloatArray = np.zeros(functions)

    @property
    def share_F(self) -> FloatArray:
        """The share of the repeated completions with another score than before, NaN without any, shape (F,)."""
        return self._differ_F / np.where(self.repeats_F > 0, self.repeats_F, np.nan)

    @property
    def difference_F(self) -> FloatArray:
        """The mean absolute difference of repeated scores, NaN without any, shape (F,)."""
        return self._total_F / np.where(self.repeats_F > 0, self.repeats_F, np.nan)

    def add(self, ids_R: Sequence[Id], completions_R: Sequence[Hashable], scores_RF: FloatArray) -> None:
        """Adds a step: the prompt of each rollout, a key of its completion, and its scores, NaN for none."""
        again, before = [], []
        for at, key in enumerate(zip(ids_R, completions_R, strict=True)):
            if (scores_F := self._scores.pop(key, None)) is not None:
                again.append(at)
                before.append(scores_F)
            self._scores[key] = scores_RF[at]
        if again:  # all at once, because a step of a small model may repeat hundreds
            before_KF, after_KF = np.array(before), scores_RF[again]
            both_KF = ~np.isnan(before_KF) & ~np.isnan(after_KF)
            low_KF, high_KF = np.fmin(before_KF, after_KF), np.fmax(before_KF, after_KF)
            differ_KF = both_KF & unequal(np.nan_to_num(low_KF), np.nan_to_num(high_KF))
            self.repeats_F += both_KF.sum(axis=0)
            self._differ_F += differ_KF.sum(axis=0)
            self._total_F += np.where(both_KF, high_KF - low_KF, 0.0).sum(axis=0)
        while len(self._scores) > _REMEMBERED:
            self._scores.popitem(last=False)
