"""PODS and D3S: the rows that vary most, inside each group or over the whole batch."""

from collections.abc import Sequence

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.policies.downselect.variance import max_variance
from budgetalloc.policies.oversampling import generate_and_keep, scaled_advantages
from budgetalloc.policies.policy import Policy


def pods(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of each group whose rewards vary most (PODS, arXiv 2504.13818).

    The released code takes the advantages over the rows kept; here they are taken over the whole group.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = pods(generate=2)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 0]), 4)
    array([0, 3, 4, 6])
    """

    def keep(
        ids_R: Sequence[Id],
        rewards_R: FloatArray,
        rows: int,
        scores_RF: FloatArray | None = None,
        success_R: FloatArray | None = None,
    ) -> IntArray:
        return max_variance(ids_R, rewards_R, rows)

    return generate_and_keep("pods", generate, keep, seed)


def d3s(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of the whole batch whose advantages vary most (D3S, arXiv 2509.22115, cross-group rule).

    Advantages are normalised inside each group over all its rollouts and not again. Groups of equal rewards are
    dropped, rare successes and rare failures kept. The paper also drops tokens and relaxes both shares in the course
    of training (`downselect.d3s_schedule`), which a batch of fixed size does not allow: neither is part of this.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = d3s(generate=2)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 1, 1]), 4)
    array([0, 1, 2, 3])
    """

    def keep(
        ids_R: Sequence[Id],
        rewards_R: FloatArray,
        rows: int,
        scores_RF: FloatArray | None = None,
        success_R: FloatArray | None = None,
    ) -> IntArray:
        return max_variance(ids_R, scaled_advantages(ids_R, rewards_R), rows, across=True)

    return generate_and_keep("d3s", generate, keep, seed)
