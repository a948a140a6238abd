"""VIGOR: small groups, which grow in rounds where rewards varied most."""

import math
from typing import Annotated

import numpy as np

from budgetalloc.methods.table import Between, Count, Inside, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.spending import Spending


@method("in rounds", "a description")
def vigor(
    *, first: Annotated[int, Between(2)] = 4, rounds: Count = 2, share: Inside = 0.5, seed: int = 0
) -> Policy:
    """Starts every prompt with a few rollouts, then lets the groups with the largest variance grow
    in rounds. Prompts that are always solved or always failed keep small groups.

    Formula: 4 of each prompt, then in rounds the share alpha of the open groups with the largest
    variance grows by the factor 1 / alpha.

    Source: VIGOR (arXiv 2607.22002). Compared with a description only: summaries of the paper,
    whose text was not read. The constants are our defaults: groups of 8 on average end with 4, 8 or
    16.

    All groups are trained on. The mean of a group that grows by its outcomes is biased.

    Args:
        first: Rollouts of a prompt before the first round; fewer if the budget does not suffice.
        rounds: Rounds after it. Each generates about as much as the others.
        share: alpha.

    >>> from budgetalloc import Budget
    >>> step = vigor(first=2, rounds=1, seed=0).begin(["a", "b"], Budget(rollouts=6))
    >>> step.request()
    array([2, 2])
    >>> step.observe(["a", "a", "b", "b"], [1, 1, 0, 1]); step.request()
    array([0, 2])
    """

    def decide(view: View) -> Rounds:
        budget, prompts = view.budget, len(view.belief_P)
        spending, size, quantum = Spending(budget, prompts), first, budget.quantum
        if budget.fewest:  # every prompt starts
            size = min(first, spending.left // prompts) // quantum * quantum
        else:
            each = first * (1 + rounds * (1 - share))  # mean rollouts of a prompt in the end
            prompts = min(math.ceil(spending.left / each), prompts)
        open_K = np.arange(prompts)
        spending.give_each(open_K, size)
        before_P = np.zeros_like(spending.counts_P)
        for _ in range(rounds):
            seen = yield spending.counts_P - before_P
            before_P = spending.counts_P.copy()
            largest = np.argsort(-seen.variance_P[open_K], kind="stable")
            open_K = open_K[largest[: math.ceil(share * len(open_K))]]
            spending.give_each(open_K, np.rint(before_P[open_K] * (1 / share - 1)).astype(np.int64))
            if (spending.counts_P == before_P).all():  # at the cap
                break
        spending.spread(open_K)
        spending.spread_rest()
        yield spending.counts_P - before_P

    return policy(decide)
