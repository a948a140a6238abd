"""DART: fewer rollouts for easy prompts."""

from typing import Annotated

import numpy as np

from budgetalloc.budget import IntArray
from budgetalloc.methods.rules import batch, in_proportion
from budgetalloc.methods.table import Between, Count, Share, method, policy
from budgetalloc.policies import Policy, View


@method("across prompts", "a description", of_rates=True)
def dart(
    *,
    group: Count = 8,
    reduced: Annotated[int, Between(1, "group")] = 4,
    easy: Share = 0.6,
    discount: float = 0.9,
    seed: int = 0,
) -> Policy:
    """Gives smaller groups to prompts that succeed often. It is meant to save rollouts on tasks
    that the model already solves most of the time.

    Formula: n = 8 if p <= 0.6, else 4.

    Source: DART (arXiv 2509.23866). Compared with a description only. The formula for the reduction
    was not found, and 4 is our default. The released code has no such rule. p is the posterior
    mean.

    With `floor=0`, the rollouts saved go to further prompts. Graded success enters through its
    mean.

    >>> from budgetalloc import Budget
    >>> policy = dart(seed=0)
    >>> policy.observe(["easy"] * 8 + ["half"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.allocate(["easy", "half", "new"], Budget(rollouts=20))
    array([4, 8, 8])
    """

    def decide(view: View) -> IntArray:
        wanted_P = np.where(view.belief_P.mean > easy, reduced, group)
        return in_proportion(wanted_P, view, None if view.budget.fewest else batch(wanted_P, view))

    return policy(decide, discount=discount)
