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
        for key, scores_F in zip(zip(ids_R, completions_R, strict=True), scores_RF, strict=True):
            before_F = self._scores.pop(key, None)
            if before_F is not None:
                both_F = ~np.isnan(before_F) & ~np.isnan(scores_F)
                low_F, high_F = np.fmin(before_F, scores_F), np.fmax(before_F, scores_F)
                self.repeats_F += both_F
                self._differ_F += both_F & unequal(np.nan_to_num(low_F), np.nan_to_num(high_F))
                self._total_F += np.where(both_F, high_F - low_F, 0.0)
            self._scores[key] = scores_F
        while len(self._scores) > _REMEMBERED:
            self._scores.popitem(last=False)
