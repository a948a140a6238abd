"""The rollouts that a step has requested and observed, by prompt."""

from collections import Counter

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.pool import Pool
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError

__all__ = ["CountedRollouts"]


class CountedRollouts:
    """The rollouts that a step has requested and observed, by the prompt's place in `ids_P`.

    >>> counted = CountedRollouts(Pool.of(["a", "b"]))
    >>> counted.request(np.array([2, 1]))
    >>> counted.observe(np.array([0, 1]))
    >>> counted.requested, counted.missing()
    (3, ['a'])
    """

    def __init__(self, ids_P: Pool) -> None:
        self.ids_P = ids_P
        self.begun = False
        """Whether there was a request."""
        self._requested, self._observed = Counter[int](), Counter[int]()  # few of a large pool

    @property
    def requested(self) -> int:
        """The rollouts of all requests."""
        return self._requested.total()

    def request(self, counts_P: IntArray) -> None:
        """Adds the rollouts of a request."""
        self.begun = True
        some = np.flatnonzero(counts_P > 0)
        self._requested.update(dict(zip(some.tolist(), counts_P[some].tolist(), strict=True)))

    def observe(self, at_R: IntArray) -> None:
        """Adds observed rollouts, any number before the first request. Raises `InputError`, and
        adds none, if a prompt then has more than were requested."""
        if not self.begun:
            return
        new = Counter(at_R.tolist())
        if over := [at for at, n in new.items() if self._observed[at] + n > self._requested[at]]:
            at = min(over)
            earlier = f" after {self._observed[at]} before" if self._observed[at] else ""
            raise InputError(
                f"ids_R holds {new[at]} rollouts of {self.ids_P[at]!r}{earlier}, and "
                f"{self._requested[at]} were "
                "requested in this step: observe each rollout once, and no others."
            )
        self._observed.update(new)

    def missing(self) -> list[Id]:
        """The prompt of each rollout that was requested and not observed."""
        return [self.ids_P[at] for at in sorted((self._requested - self._observed).elements())]
