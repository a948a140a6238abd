"""CPPO: the rows of largest |advantage|."""

from budgetalloc.methods.downselect.rules import largest_advantages
from budgetalloc.methods.oversampling import generate_and_keep, scaled_advantages
from budgetalloc.policies.policy import Policy

__all__ = ["cppo"]


def cppo(*, generate: int = 4, seed: int = 0) -> Policy:
    """Trains on the rows of each group with the largest |advantage| (CPPO, arXiv 2503.22342).

    A pruning rate P is `generate = 1 / (1 - P)`. The paper also fills the freed memory of a device
    with further prompts. That is not included, because the batch that is trained on has a fixed
    size.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. 4 is P = 75 %.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = cppo(generate=4)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 1]), 2)
    array([3, 6])
    """
    return generate_and_keep(
        "cppo",
        generate,
        lambda ids, rewards, rows, *_: largest_advantages(
            ids, scaled_advantages(ids, rewards), rows
        ),
        seed,
    )
