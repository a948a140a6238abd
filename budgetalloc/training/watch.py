"""Warnings, given once, about conditions that persist for many steps."""

import logging

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import FloatArray

logger = logging.getLogger(__name__)
_STEPS, _COLD_STEPS = 10, 20
_BELOW, _ABOVE = -0.3, 0.7  # mean advantages; where the model learns quickly, rewards exceed the beliefs by up to half


class Watch:
    """Warns once if the advantages lean to one side for ten steps, and once if no prompt returns for twenty steps."""

    def __init__(self) -> None:
        self._leaning, self._said = 0, False
        self._cold = 0

    def look_at_prompts(self, cold_P: NDArray[np.bool_]) -> None:
        """Looks at which of a batch's own prompts had never been seen, shape (P,), where only those were on offer."""
        self._cold = self._cold + 1 if cold_P.all() else 0
        if self._cold == _COLD_STEPS:
            logger.warning(
                "No prompt of the last %d batches had been seen before: with candidates=1 the policy has no history "
                "until the dataset's second epoch, and treats all prompts alike. Pass candidates='all' to choose among "
                "the whole dataset, or attach uniform().",
                _COLD_STEPS,
            )

    def look(self, advantages_R: FloatArray) -> None:
        """Checks the advantages of a finished step, shape (R,)."""
        lean = leaning(advantages_R)
        self._leaning = self._leaning + 1 if lean < _BELOW or lean > _ABOVE else 0
        if self._leaning >= _STEPS and not self._said:
            self._said = True
            logger.warning(
                "The mean advantage has been outside %g to %g of their root mean square for %d steps in a row (now "
                "%+.2f): the baseline lies %s the rewards, and the gradient moves the probability of every sampled "
                "completion %s. Possible reasons: the beliefs are about another success than the reward (pass "
                "success=), most prompts are visited only once, or the range of rewards is wrong. baseline='loo' with "
                "min_group=2 needs no beliefs.",
                _BELOW,
                _ABOVE,
                self._leaning,
                lean,
                "above" if lean < 0 else "below",
                "down" if lean < 0 else "up",
            )


def leaning(advantages_R: FloatArray) -> float:
    """Mean advantage in units of the root mean square, in [-1, 1]; 0 where all are 0.

    >>> leaning(np.array([-1.0, -1.0, -1.0, 1.0])), leaning(np.zeros(4))
    (-0.5, 0.0)
    """
    spread = float(np.sqrt(np.mean(advantages_R**2))) if len(advantages_R) else 0.0
    return float(np.mean(advantages_R)) / spread if spread > 0 else 0.0
