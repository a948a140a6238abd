"""Shuffle-R1: pairs of the best with the worst rollouts, resampled by |advantage|."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer
from budgetalloc.methods.downselect.pairs import (
    extreme_pairs,
    pairwise_extremes,
    weighted_resample,
)
from budgetalloc.methods.oversampling import generate_and_keep, rng_of_step, scaled_advantages
from budgetalloc.policies.policy import Policy

__all__ = ["shuffle_r1"]


def shuffle_r1(*, generate: int = 2, draws: int = 8, seed: int = 0) -> Policy:
    """Pairs the best with the worst of each group, then draws pairs again by |advantage|
    (Shuffle-R1, 2508.05612).

    Of 2N rollouts of a prompt, N are kept as pairs. The batch consists of `draws` equal draws of
    pairs, each without replacement. A pair therefore appears 0 to `draws` times. Pairs of advantage
    0 are drawn only if too few other pairs are left. The draws depend on the seed and on the step's
    ids and rewards.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. 2 is the paper's alpha =
            0.5.
        draws: S, at least 1.
        seed: Seeds the draws and the ties.

    >>> policy = shuffle_r1(generate=2, draws=2)  # b has no signal: the pair of a comes twice
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 1, 1]), 4)
    array([1, 1, 3, 3])
    """
    check_integer("draws", draws, 1, 1024)

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

    return generate_and_keep("shuffle_r1", generate, keep, seed, f", draws={draws}")
