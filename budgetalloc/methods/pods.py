"""PODS and D3S: the rows that vary most, inside each group or over the whole batch."""

from budgetalloc.methods.downselect.variance import max_variance
from budgetalloc.methods.oversampling import generate_and_keep, scaled_advantages
from budgetalloc.policies.policy import Policy

__all__ = ["d3s", "pods"]


def pods(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of each group whose rewards vary most (PODS, arXiv 2504.13818).

    The released code computes advantages over the rows kept; here they are computed over the whole
    group.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = pods(generate=2)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 0]), 4)
    array([0, 3, 4, 6])
    """
    return generate_and_keep(
        "pods", generate, lambda ids, rewards, rows, *_: max_variance(ids, rewards, rows), seed
    )


def d3s(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of the whole batch whose advantages vary most (D3S, arXiv 2509.22115,
    cross-group rule).

    Advantages are normalized once, within each group over all its rollouts. Groups of equal rewards
    are dropped; rare successes and rare failures are kept. The paper also drops tokens and relaxes
    both shares during training (`downselect.d3s_schedule`). Neither is included, because the batch
    has a fixed size.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = d3s(generate=2)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 1, 1]), 4)
    array([0, 1, 2, 3])
    """
    return generate_and_keep(
        "d3s",
        generate,
        lambda ids, rewards, rows, *_: max_variance(
            ids, scaled_advantages(ids, rewards), rows, across=True
        ),
        seed,
    )
