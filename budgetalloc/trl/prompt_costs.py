"""Cumulative cost of each prompt, and histograms of a step's counts and predictions."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import Stateful, Table
from budgetalloc.budget import IntArray

__all__ = ["PromptCosts", "histogram_of_counts", "histogram_of_rates"]

# sums of each prompt; "scored" counts rollouts with a reward
_COLUMNS = ("rollouts", "tokens", "rewards", "scored")


class PromptCosts(Stateful):
    """Cumulative rollouts, tokens and rewards of each prompt.

    >>> prompt_costs = PromptCosts()
    >>> prompt_costs.add(["a", "a", "a", "b"], np.array([1.0, 1.0, np.nan, 0.0]), np.array([10, 10, 10, 20]))
    >>> prompt_costs.add(["b", "c"], np.array([1.0, 1.0]), np.array([70, 5]))
    >>> prompt_costs.top(2)  # prompt, rollouts, tokens, mean of the rewards that there were
    [('b', 2, 90, 0.5), ('a', 3, 30, 1.0)]
    """

    saved = ("_prompts",)

    def __init__(self) -> None:
        self._prompts = Table(dict.fromkeys(_COLUMNS, 0.0), {"rewards": -np.inf})

    def add(self, ids_R: Sequence[Id], rewards_R: FloatArray, lengths_R: IntArray) -> None:
        """Adds one step.

        Args:
            ids_R: Prompt of each rollout.
            rewards_R: Its reward in [0, 1], NaN where there was none.
            lengths_R: Its tokens.
        """
        ids_P, group_R = factorize(ids_R)
        at_P = self._prompts.add(ids_P)
        added = {
            "rollouts": np.ones(len(group_R)),
            "tokens": lengths_R,
            "rewards": np.nan_to_num(rewards_R),
            "scored": ~np.isnan(rewards_R),
        }
        for name, values_R in added.items():
            self._prompts[name][at_P] += np.bincount(group_R, values_R, len(ids_P))

    def top(self, rows: int) -> list[tuple[Id, int, int, float | None]]:
        """The prompts with most tokens, most first: prompt, rollouts, tokens, mean reward (None if
        unscored)."""
        names = self._prompts.ids
        rollouts_P, tokens_P, rewards_P, scored_P = (self._prompts[name] for name in _COLUMNS)
        return [
            (
                names[p],
                int(rollouts_P[p]),
                int(tokens_P[p]),
                float(rewards_P[p] / scored_P[p]) if scored_P[p] else None,
            )
            for p in np.lexsort((-rollouts_P, -tokens_P))[:rows].tolist()
        ]


def histogram_of_counts(counts_G: IntArray) -> tuple[IntArray, FloatArray]:
    """How many groups G have each size, and the edges of the bins: one bin per size, at most 128
    bins.

    >>> histogram_of_counts(np.array([2, 2, 4]))
    (array([2, 0, 1]), array([1.5, 2.5, 3.5, 4.5]))
    """
    low, high = int(counts_G.min()), int(counts_G.max())
    width = -(-(high - low + 1) // 128)
    return np.histogram(counts_G, bins=np.arange(low, high + 1 + width, width) - 0.5)


def histogram_of_rates(rates_G: FloatArray) -> tuple[IntArray, FloatArray]:
    """How many rates lie in each twentieth of [0, 1], and the edges of these bins."""
    return np.histogram(rates_G, bins=np.linspace(0, 1, 21))
