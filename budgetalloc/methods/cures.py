"""CurES: prompts drawn by their deviation, counts by Neyman's rule."""

from dataclasses import replace
from typing import Annotated

import numpy as np

from budgetalloc.budget import IntArray, rollouts_alone
from budgetalloc.methods.offline import InitialSuccess
from budgetalloc.methods.rules import groups_in
from budgetalloc.methods.table import Between, Count, Positive, method
from budgetalloc.policies import Policy, View
from budgetalloc.policies.composition import spend, top
from budgetalloc.solvers.proportional import proportional


@method("which prompts", "released code")
def cures(
    *,
    group: Count = 8,
    fewest: Annotated[int, Between(1, "group")] = 4,
    temperature: Positive = 0.1,
    first: Annotated[int, Between(0)] = 4,
    seed: int = 0,
) -> Policy:
    """Draws prompts with a higher probability the more their success varies, and gives these larger
    groups too. It is meant for datasets in which many prompts are nearly always solved or failed.

    Formula: drawn by exp(sqrt(p(1-p)) / tau), then n in proportion to sqrt(p(1-p)).

    Source: CurES (arXiv 2510.01037). Compared with the released code. That code samples almost
    uniformly, by a posterior that stays fixed, and gives nothing to a prompt without spread. Here
    the prompt keeps `fewest`. The temperature is our default.

    As in the released code, the run begins with 4 rollouts of every prompt, which are not trained
    on. p is the posterior mean under Beta(1, 1) without forgetting.

    Args:
        group, fewest: Mean and fewest rollouts of a drawn prompt.
        first: Rollouts of every prompt that the run begins with; without, one never seen counts as
            1/2.

    >>> from budgetalloc import Budget
    >>> policy = cures(first=0, seed=0)
    >>> policy.observe(["half"] * 8 + ["easy"] * 8, [0, 1] * 4 + [1] * 8)
    >>> policy.allocate(["half", "easy"], Budget(rollouts=16, floor=0))
    array([10,  6])
    """
    reference = InitialSuccess(first or None)

    def decide(view: View) -> IntArray:
        mean_P = view.belief_P.mean
        spread_P = np.sqrt(mean_P * (1 - mean_P) * view.belief_P.spread_P)
        budget, rollouts = view.budget, rollouts_alone(view.budget)
        if rollouts is None:
            return spend(view.belief_P, top(spread_P + 1e-12, group), view, None)
        chosen_P = np.arange(len(mean_P))
        if budget.fewest == 0:
            low = max(budget.smallest_group, fewest // budget.quantum * budget.quantum)
            number = groups_in(rollouts, max(group, low), budget)
            if number * low > rollouts:
                low = budget.smallest_group
            # The largest sums with Gumbel noise: a draw without replacement by these weights.
            keys_P = spread_P / temperature + view.rng.gumbel(size=len(mean_P))
            chosen_P = np.sort(np.argsort(-keys_P, kind="stable")[:number])
            budget = replace(budget, floor=low)
        counts_P = np.zeros(len(mean_P), dtype=np.int64)
        counts_P[chosen_P] = proportional(spread_P[chosen_P], None, budget)
        return counts_P

    return reference.policy(decide, prior=(1.0, 1.0), scale="group")
