"""CPPO: the rows of largest |advantage|."""

from collections.abc import Sequence

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.policies.downselect.rules import largest_advantages
from budgetalloc.policies.oversampling import generate_and_keep, scaled_advantages
from budgetalloc.policies.policy import Policy


def cppo(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of each group with the largest |advantage| (CPPO, arXiv 2503.22342).

    A pruning rate P is `generate = 1 / (1 - P)`. The paper's dynamic completion allocation, which fills the room that
    pruning leaves on a device with further prompts, is not part of this: the batch that is trained on has a fixed size.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. 4 is P = 75 %.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = cppo(generate=4)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 1]), 2)
    array([3, 6])
    """

    def keep(
        ids_R: Sequence[Id],
        rewards_R: FloatArray,
        rows: int,
        scores_RF: FloatArray | None = None,
        success_R: FloatArray | None = None,
    ) -> IntArray:
        return largest_advantages(ids_R, scaled_advantages(ids_R, rewards_R), rows)

    return generate_and_keep("cppo", generate, keep, seed)
