"""Warns if every batch has new prompts only."""

import logging

import numpy as np
from numpy.typing import NDArray

__all__ = ["UnseenPromptsWarning"]

logger = logging.getLogger(__name__)
_COLD_STEPS = 20


class UnseenPromptsWarning:
    """Warns once if twenty batches in a row hold no prompt that was seen before."""

    def __init__(self) -> None:
        self._cold = 0

    def check_step(self, cold_P: NDArray[np.bool_]) -> None:
        """Takes whether each prompt of a batch is new, shape (P,)."""
        self._cold = self._cold + 1 if cold_P.all() else 0
        if self._cold == _COLD_STEPS:
            logger.warning(
                "No prompt of the last %d batches had been seen before: with candidates=1 the "
                "policy has no history "
                "until the dataset's second epoch, and treats all prompts alike. Pass "
                "candidates='all' to choose among "
                "the whole dataset, or attach uniform().",
                _COLD_STEPS,
            )
