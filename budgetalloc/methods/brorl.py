"""BroRL: few prompts with very many rollouts each."""

import numpy as np

from budgetalloc.budget import IntArray
from budgetalloc.methods.rules import batch, in_proportion
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy, View


@method("which prompts", "paper's formulas")
def brorl(*, group: Count = 512, seed: int = 0) -> Policy:
    """Gives very many rollouts each to few random prompts: depth against breadth at a fixed budget.
    The paper uses it to continue a training that smaller groups no longer improve.

    Formula: budget / n prompts at random, n = 512 each.

    Source: BroRL (arXiv 2510.01180). Compared with the paper's formulas. The paper goes from 16 to
    512 rollouts of a prompt and 8 times the budget, and multiplies the learning rate by the root of
    the batch's growth.

    >>> from budgetalloc import Budget
    >>> brorl(group=16, seed=0).allocate(["a", "b", "c", "d"], Budget(rollouts=32, floor=0))
    array([16, 16,  0,  0])
    """

    def decide(view: View) -> IntArray:
        wanted_P = np.full(len(view.belief_P), group)
        return in_proportion(wanted_P, view, batch(wanted_P, view))

    return policy(decide, candidates="all")
