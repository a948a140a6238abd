"""Recognises reward functions that compare the completions of a block of rows, as TRL's groups
are."""

import logging
import math
from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray

logger = logging.getLogger(__name__)
_CHANCE = 1e-6  # of equal sums, below which they are no chance


class BlockRewards:
    """Warns once about each reward function whose rewards vary within blocks of `size` rows and
    have the same sum in every block, as ranks and rewards minus their mean do.

    Such a function takes a block for the completions of one prompt, which it is not under a policy.
    The chance of equal sums of independent rewards is about d / sqrt(2 pi size v), where d is the
    smallest difference between rewards and v their variance.

    Args:
        size: Rows of a block, TRL's `num_generations`.

    >>> BlockRewards(2).add(["rank"], np.array([[0.0], [1.0], [1.0], [0.0]])) # two blocks: too few
    []
    >>> BlockRewards(2).add(["score"], np.array([[0.0], [1.0], [0.0], [0.0]] * 20))
    []
    >>> BlockRewards(2).add(["rank"], np.array([[0.0], [1.0]] * 40))
    ['rank']
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._blocks: dict[str, FloatArray | None] = {}  # None: known

    def add(self, names: Sequence[str], scores_RF: FloatArray) -> list[str]:
        """Adds the rewards of a round, unless its blocks are not whole, and logs a warning for each
        function that is recognised; returns their names."""
        found: list[str] = []
        if not len(scores_RF) or len(scores_RF) % self.size:
            return found
        for f, name in enumerate(names):
            before = self._blocks.get(name, np.zeros((0, self.size)))
            if before is None:
                continue
            blocks = np.concatenate([before, scores_RF[:, f].reshape(-1, self.size)])
            self._blocks[name] = blocks
            sums, spread = blocks.sum(axis=1), np.ptp(blocks, axis=1)
            least = 1e-4 * spread.max(initial=0.0)  # rewards are floats of 32 bits
            if not (np.ptp(sums) <= least and (spread > least).all()):  # False for NaN
                self._blocks[name] = None
                continue
            steps = np.diff(np.unique(blocks))
            chance = steps[steps > least].min() / math.sqrt(2 * math.pi * self.size * blocks.var())
            if min(chance, 0.9) ** (len(blocks) - 1) < _CHANCE:
                self._blocks[name] = None
                found.append(name)
                logger.warning(
                    "The rewards of %s have the same sum in each %d adjacent rows: it seems to "
                    "compare the completions of num_generations rows, which are not of one prompt "
                    "under this policy. Group its rows by the column budgetalloc_group, which "
                    "holds the id of each row's prompt.",
                    name,
                    self.size,
                )
        return found
