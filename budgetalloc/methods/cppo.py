"""CPPO: the rows of largest |advantage|."""

from budgetalloc.methods.downselect import largest_advantages
from budgetalloc.methods.pods import Generate
from budgetalloc.methods.rules import generate_and_keep, scaled_advantages
from budgetalloc.methods.table import method
from budgetalloc.policies import Policy


@method("which rollouts", "a description")
def cppo(*, generate: Generate = 4, seed: int = 0) -> Policy:
    """CPPO (arXiv 2503.22342): of each group the rows of largest |(r - mean) / std|.

    A pruning rate P is `generate = 1 / (1 - P)`. The paper also fills the freed memory of a device
    with further prompts.

    >>> import numpy as np
    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 0, 1])
    >>> cppo(generate=4).keep(["a"] * 4 + ["b"] * 4, rewards_R, 2)
    array([3, 6])
    """
    return generate_and_keep(
        generate,
        lambda ids, rewards, rows, *_: largest_advantages(
            ids, scaled_advantages(ids, rewards), rows
        ),
    )
