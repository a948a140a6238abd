"""PODS and D3S: the rows that vary most, inside each group or over the whole batch."""

from typing import Annotated

from budgetalloc.methods.downselect import max_variance
from budgetalloc.methods.rules import generate_and_keep, scaled_advantages
from budgetalloc.methods.table import Between, method
from budgetalloc.policies import Policy

Generate = Annotated[int, Between(2)]


@method("which rollouts", "released code")
def pods(*, generate: Generate = 4, seed: int = 0) -> Policy:
    """PODS (arXiv 2504.13818): of each group the m rewards of largest variance: the j lowest and
    the m - j highest.

    Advantages are over all generated rollouts; in the released code, over the rows kept. generate
    is our default.

    >>> import numpy as np
    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 0, 0])
    >>> pods(generate=2).keep(["a"] * 4 + ["b"] * 4, rewards_R, 4)
    array([0, 3, 4, 6])
    """
    return generate_and_keep(
        generate, lambda ids, rewards, rows, *_: max_variance(ids, rewards, rows)
    )


@method("which rollouts", "a description")
def d3s(*, generate: Generate = 4, seed: int = 0) -> Policy:
    """D3S (arXiv 2509.22115): of the whole batch the rows of largest variance of (r - mean) / std
    of their group.

    Without the token level and without the relaxation of the share during training. generate is our
    default.

    >>> import numpy as np
    >>> rewards_R = np.array([0.0, 0, 0, 1, 1, 1, 1, 1])
    >>> d3s(generate=2).keep(["a"] * 4 + ["b"] * 4, rewards_R, 4)
    array([0, 1, 2, 3])
    """
    return generate_and_keep(
        generate,
        lambda ids, rewards, rows, *_: max_variance(
            ids, scaled_advantages(ids, rewards), rows, across=True
        ),
    )
