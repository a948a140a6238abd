"""RAGEN-2's filter: the groups that hold most of the variance."""

from typing import Annotated

from budgetalloc.methods.downselect import top_p_variance
from budgetalloc.methods.pods import Generate
from budgetalloc.methods.rules import generate_and_keep
from budgetalloc.methods.table import Between, method
from budgetalloc.policies import Policy


@method("which rollouts", "paper's formulas")
def top_p(
    *,
    generate: Generate = 2,
    share: Annotated[float, Between(0, 1, without=(0,))] = 0.9,
    seed: int = 0,
) -> Policy:
    """RAGEN-2 (arXiv 2604.06268): the fewest groups whose reward variances add up to a share p of
    all.

    Groups of least variance fill the batch. p and generate are our defaults.

    >>> import numpy as np
    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 0, 0])
    >>> top_p(generate=2, share=0.5).keep(["a"] * 4 + ["b"] * 4, rewards_R, 4)
    array([4, 5, 6, 7])
    """
    return generate_and_keep(
        generate, lambda ids, rewards, rows, *_: top_p_variance(ids, rewards, share, rows)
    )
