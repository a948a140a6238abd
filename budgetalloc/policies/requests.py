"""The rollouts that a step has requested of each prompt, and those that came back."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError


class Requests:
    """Counts the rollouts requested and observed, and refuses those that were not requested.

    Before the first request, any number of rollouts is accepted: a trainer may keep its own batch.

    >>> requests = Requests()
    >>> requests.add(np.array([2, 0]), 2)
    >>> requests.observe(["a", "b"], np.array([0, 0]))
    >>> requests.observe(["a", "b"], np.array([0]))
    Traceback (most recent call last):
    budgetalloc.errors.InputError: ids_R holds 1 rollouts of 'a' after 2 before, and 2 were requested in this step:
    observe each rollout once, and no others.
    """

    def __init__(self) -> None:
        self.total = 0
        """Rollouts requested so far."""
        self._requested_P: IntArray | None = None
        self._observed_P = np.zeros(0, dtype=np.int64)

    def add(self, counts_P: IntArray, total: int) -> None:
        """Adds one request: the rollouts of each prompt, shape (P,), and their sum."""
        if self._requested_P is None:
            self._requested_P, self._observed_P = np.zeros_like(counts_P), np.zeros_like(counts_P)
        self._requested_P += counts_P
        self.total += total

    def observe(self, ids_P: Sequence[Id], at_R: IntArray) -> None:
        """Counts rollouts of the prompts at these places of `ids_P`.

        Raises:
            InputError: more rollouts of a prompt than were requested; nothing is counted then.
        """
        if self._requested_P is None:
            return
        at_K, new_K = np.unique(at_R, return_counts=True)
        before_K, most_K = self._observed_P[at_K], self._requested_P[at_K]
        if (before_K + new_K > most_K).any():
            k = int(np.argmax(before_K + new_K > most_K))
            earlier = f" after {before_K[k]} before" if before_K[k] else ""
            raise InputError(
                f"ids_R holds {new_K[k]} rollouts of {ids_P[int(at_K[k])]!r}{earlier}, and {most_K[k]} were requested "
                "in this step: observe each rollout once, and no others."
            )
        self._observed_P[at_K] = before_K + new_K
