"""The rollouts of a step by prompt, as rules read them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import mixed_groups
from budgetalloc.budget import IntArray


@dataclass(frozen=True, eq=False)
class ByPrompt:
    """The rollouts of a step so far, by prompt.

    Args:
        ids_P: The prompts, some of which may have no rollouts.
        prompt_R: The place in `ids_P` of each rollout's prompt, shape (R,).
        rewards_R: Its reward, on the trainer's scale; near ties are equal. NaN for none.
        success_R: Its success in [0, 1]; NaN for none.
        running_P: Whether more rollouts of the prompt are being generated (`Needs.by_group`), shape
            (P,); without it none are.

    >>> seen = ByPrompt.of(["a", "a", "b", "b"], np.array([0.2, 0.2, 0.2, 1.0]), np.eye(4)[3])
    >>> seen.n_P, seen.successes_P, seen.mixed_P
    (array([2., 2.]), array([0., 1.]), array([False,  True]))
    """

    ids_P: Sequence[Id]
    prompt_R: IntArray
    rewards_R: FloatArray
    success_R: FloatArray
    running_P: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def __post_init__(self) -> None:
        if len(self.running_P) != len(self.ids_P):
            object.__setattr__(self, "running_P", np.zeros(len(self.ids_P), dtype=np.bool_))

    @classmethod
    def of(cls, ids_R: Iterable[Id], rewards_R: FloatArray, success_R: FloatArray) -> "ByPrompt":
        """The rollouts of these prompts, in the order in which the prompts first appear."""
        return cls(*factorize(list(ids_R)), rewards_R, success_R)

    @classmethod
    def none(cls, ids_P: Sequence[Id]) -> "ByPrompt":
        """No rollouts yet."""
        running_P = np.zeros(len(ids_P), dtype=np.bool_)
        return cls(ids_P, np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), running_P)

    def _sum(self, values_R: FloatArray) -> FloatArray:
        scored_R = ~np.isnan(self.success_R)
        at_R, values_R = self.prompt_R[scored_R], values_R[scored_R]
        return np.bincount(at_R, values_R, len(self.ids_P)).astype(np.float64)

    @cached_property
    def n_P(self) -> FloatArray:
        """Rollouts with a success, shape (P,)."""
        return self._sum(np.ones(len(self.success_R)))

    @cached_property
    def successes_P(self) -> FloatArray:
        """Sum of their successes, in [0, n]."""
        return self._sum(self.success_R)

    @cached_property
    def mean_P(self) -> FloatArray:
        """Their mean success, 0 without any."""
        return np.asarray(self.successes_P / np.maximum(self.n_P, 1))

    @cached_property
    def graded_P(self) -> FloatArray:
        """Sum of u(1-u) over their successes u; 0 if all are 0 or 1."""
        return self._sum(self.success_R * (1 - self.success_R))

    @cached_property
    def variance_P(self) -> FloatArray:
        """The variance of their successes, 0 without any; m (1-m) for 0/1 successes of mean m."""
        mean_P, graded_P = self.mean_P, self.graded_P / np.maximum(self.n_P, 1)
        return np.asarray(np.maximum(mean_P * (1 - mean_P) - graded_P, 0.0))

    @cached_property
    def mixed_P(self) -> NDArray[np.bool_]:
        """Whether their rewards are unequal."""
        return mixed_groups(self.rewards_R, self.prompt_R, len(self.ids_P))
