"""What every estimator does: keeps the belief about each prompt, and learns from rewards."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id, check_ids, factorize
from budgetalloc.beliefs.pool import Index
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import check_rewards
from budgetalloc.budget import IntArray

__all__ = ["Estimator", "summed"]


def summed(
    ids_R: Iterable[Any], success_R: ArrayLike
) -> tuple[list[Id], FloatArray, FloatArray, FloatArray]:
    """The prompts that have a success, and for each the sum of its successes u, their number, and
    the sum of u(1-u).

    Raises:
        InputError: ids and successes of different lengths, or a success outside [0, 1]. NaN and
            None are ignored.

    >>> summed(["a", "b", "a", "c"], [1.0, 0.5, 0.0, None])
    (['a', 'b'], array([1. , 0.5]), array([2., 1.]), array([0.  , 0.25]))
    """
    ids = check_ids(ids_R, "ids_R")
    success = check_rewards(success_R, len(ids), "success_R")
    scored = ~np.isnan(success)
    ids_P, group_R = factorize(list(compress(ids, scored.tolist())))
    u_R = success[scored]
    parts = (u_R, np.ones(len(u_R)), u_R * (1 - u_R))
    successes_P, trials_P, graded_P = (
        np.bincount(group_R, part).astype(np.float64) for part in parts
    )
    return ids_P, successes_P, trials_P, graded_P


class Estimator(ABC):
    """Keeps a Beta belief about each prompt's success rate: `BetaEstimator` and
    `TrackingEstimator`."""

    step: int
    """Number of steps that have ended."""
    prior_now: tuple[float, float]
    """Pseudo-successes and pseudo-failures of the prior of a prompt without features, in the
    current step."""
    _index: Index

    def __len__(self) -> int:
        """Number of prompts seen at least once."""
        return len(self._index)

    def ids(self) -> list[Id]:
        """The prompts seen at least once."""
        return list(self._index.ids)

    def cold(self, ids_P: Iterable[Any]) -> NDArray[np.bool_]:
        """Which prompts were never seen, shape (P,). Their belief is the prior."""
        return self._index.find(ids_P) < 0

    @abstractmethod
    def belief(self, ids_P: Iterable[Any]) -> Beta:
        """The current belief about these prompts, shape (P,); ids may repeat, for example one id
        per rollout."""

    @abstractmethod
    def prior_of(self, ids_P: Iterable[Any]) -> tuple[FloatArray, FloatArray]:
        """Pseudo-successes and pseudo-failures of the prior that each prompt's belief contains,
        shape (P,) each."""

    @abstractmethod
    def baseline_belief(
        self, ids_G: list[Id], group_R: IntArray, success_R: FloatArray, prior_share: float = 1.0
    ) -> Beta:
        """The belief about each rollout's prompt for a baseline, shape (R,). It does not depend on
        the prompt's own rollouts in this step, but may have learned from those of other prompts.
        Call it before the step is observed.

        Args:
            ids_G: The prompts of the step.
            group_R: The index in `ids_G` of each rollout's prompt, shape (R,).
            success_R: Successes of the step in [0, 1], NaN for none, shape (R,).
            prior_share: The share of its mass that a fixed prior keeps (`variance.prior_share`).
        """

    @abstractmethod
    def observe(self, ids_R: Iterable[Any], success_R: ArrayLike) -> None:
        """Adds successes in [0, 1], one per rollout, to the current step. NaN and None are no
        evidence."""

    @abstractmethod
    def tick(self) -> None:
        """Ends the current step."""

    @abstractmethod
    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything learned, without settings. `load_state_dict` restores it to the bit."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces what was learned by a saved state; raises `StateError`, and changes nothing, if
        it does not fit."""
