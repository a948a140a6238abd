"""Pilot-Commit: a pilot of every prompt, then the rest to those whose rewards varied most."""

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.errors import check_integer, check_number
from budgetalloc.policies.interface import Needs, Rounds, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.spending import Spending

__all__ = ["pilot_commit"]


def pilot_commit(*, pilot: int = 4, group: int = 16, share: float = 0.5, seed: int = 0) -> Policy:
    """A pilot of every prompt, then the rest to those whose rewards varied most (Pilot-Commit,
    arXiv 2605.26606).

    Pilots take `share` of the budget. The prompts whose pilot rewards varied most are then filled
    up to `group`. Prompts whose pilot rewards were all equal get more only if no other prompt can
    take it.

    The released code instead commits at random to prompts from a buffer of recent pilots whose mean
    lies in [0.125, 0.75], and leaves prompts that always passed out of the next epoch. Buffer and
    eviction are not included. The paper's pilots are a quarter of the group (16 of 64, 32 of 128);
    our default group is smaller.

    Args:
        pilot: Rollouts of a pilot, at least 2.
        group: Rollouts of a prompt that is committed to, pilot included; more than `pilot`.
        share: Share of the budget spent on pilots, in (0, 1).
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> step = pilot_commit(pilot=2, group=6, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=8, floor=0))
    >>> step.request()
    array([2, 2, 0, 0])
    >>> step.observe(["a", "a", "b", "b"], [1, 1, 0, 1]); step.request()
    array([0, 4, 0, 0])
    """
    check_integer("group", group, 3)
    check_integer("pilot", pilot, 2, group - 1)  # one rollout shows no variance
    check_number("share", share, 0, 1, without=(0, 1))

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
        tally = yield before_P
        best = np.argsort(-tally.variance(), kind="stable")
        chosen = best[tally.mixed()[best] & (before_P[best] < group)]
        spending.give_each(chosen, group - before_P[chosen])
        spending.spread(best)
        yield spending.counts_P - before_P

    name = f"pilot_commit(pilot={pilot}, group={group}, share={share}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, Needs(candidates=2, baseline="group"))
