"""Shuffle-R1: pairs of the best with the worst rollouts, resampled by |advantage|."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.methods.downselect import extreme_pairs, pairwise_extremes, weighted_resample
from budgetalloc.methods.pods import Generate
from budgetalloc.methods.rules import generate_and_keep, rng_of_step, scaled_advantages
from budgetalloc.methods.table import Between, method
from budgetalloc.policies import Policy


@method("which rollouts", "released code")
def shuffle_r1(
    *, generate: Generate = 2, draws: Annotated[int, Between(1, 1024)] = 8, seed: int = 0
) -> Policy:
    """Shuffle-R1 (arXiv 2508.05612): pairs (k-th largest, k-th smallest advantage), then 8 draws
    without replacement by |A1| + |A2|.

    A rollout may be trained on several times. Too few positive weights are no error.

    Of 2N rollouts of a prompt, N are kept as pairs. The draws depend on the seed and on the step's
    ids and rewards.

    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 1, 1])  # b has no signal: a's pair comes twice
    >>> shuffle_r1(generate=2, draws=2).keep(["a"] * 4 + ["b"] * 4, rewards_R, 4)
    array([1, 1, 3, 3])
    """

    def keep(ids_R: Sequence[Id], rewards_R: FloatArray, rows: int, *_: object) -> IntArray:
        advantages_R = scaled_advantages(ids_R, rewards_R)
        pairs_J2 = extreme_pairs(ids_R, advantages_R, rows)
        rest = np.zeros(0, dtype=np.int64)
        if 2 * len(pairs_J2) < rows:  # an odd row, or groups without a pair
            rest = np.setdiff1d(pairwise_extremes(ids_R, advantages_R, rows), pairs_J2)
        if not len(pairs_J2):
            return rest
        weights_J = np.abs(advantages_R[pairs_J2]).sum(axis=1)
        rng = rng_of_step(seed, ids_R, rewards_R)
        drawn = weighted_resample(weights_J, len(pairs_J2), draws=draws, rng=rng)
        return np.sort(np.r_[pairs_J2[drawn].ravel(), rest])

    return generate_and_keep(generate, keep)
