"""Pilot-Commit: a pilot of every prompt, then the rest to those whose rewards varied most."""

from typing import Annotated

import numpy as np

from budgetalloc.errors import check_integer
from budgetalloc.methods.table import Between, Inside, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.spending import Spending


@method("in rounds", "released code")
def pilot_commit(
    *,
    pilot: Annotated[int, Between(2)] = 4,
    group: Annotated[int, Between(3)] = 16,
    share: Inside = 0.5,
    seed: int = 0,
) -> Policy:
    """Tries prompts with a few rollouts and completes the groups whose results were most mixed. It
    is meant for pools in which many prompts are always solved or always failed.

    Formula: a pilot of 4, then up to 16 for the largest r (1-r) of the pilots' means r.

    Source: Pilot-Commit (arXiv 2605.26606). Compared with the released code. This is the paper's
    rule; the released script for the 4B model commits at random to pilot means in [0.125, 0.75],
    from a buffer. The paper's pilots are 16 of 64 and 32 of 128. Our default group is smaller.

    Args:
        pilot, group: Rollouts of a pilot, and of a prompt that is committed to, pilot included.
        share: Share of the budget spent on pilots.

    >>> from budgetalloc import Budget
    >>> policy = pilot_commit(pilot=2, group=6, seed=0)
    >>> step = policy.begin(["a", "b", "c", "d"], Budget(rollouts=8, floor=0))
    >>> step.request()
    array([2, 2, 0, 0])
    >>> step.observe(["a", "a", "b", "b"], [1, 1, 0, 1]); step.request()
    array([0, 4, 0, 0])
    """
    check_integer("pilot", pilot, 2, group - 1)  # one rollout shows no variance

    def decide(view: View) -> Rounds:
        prompts = len(view.belief_P)
        spending = Spending(view.budget, prompts)
        rest = (1 - share) * spending.left
        for at in range(prompts):
            if view.budget.fewest:  # every prompt has a pilot, as large as fits
                spending.give(at, min(pilot, spending.left // (prompts - at)))
            elif at == 0 or spending.left > rest:
                spending.give(at, pilot)
        before_P = spending.counts_P.copy()
        seen = yield before_P
        best = np.argsort(-seen.variance_P, kind="stable")
        chosen = best[seen.mixed_P[best] & (before_P[best] < group)]
        spending.give_each(chosen, group - before_P[chosen])
        spending.spread(best)
        yield spending.counts_P - before_P

    return policy(decide, candidates=2)
