"""CurES: prompts drawn by their deviation, counts by Neyman's rule."""

import math
from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import IntArray, rollouts_alone
from budgetalloc.errors import check_integer, check_number
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import top
from budgetalloc.solvers.proportional import proportional

__all__ = ["cures"]


def cures(*, group: int = 8, fewest: int = 4, temperature: float = 0.1, seed: int = 0) -> Policy:
    """Prompts drawn with probability proportional to exp(sqrt(p(1-p)) / temperature), then counts
    by Neyman's rule.

    CurES (arXiv 2510.01037): counts are proportional to the Bernoulli deviation sqrt(p(1-p)), the
    paper's choice where gradient norms are unknown; p is the posterior mean under Beta(1, 1)
    without forgetting. As many prompts as groups of `group` fit into the budget are drawn without
    replacement. In the released code the temperature grows with the successes, so that it samples
    uniformly to within 0.5 %, the posterior is never updated, and a prompt without spread gets
    nothing. Here such a prompt keeps `fewest`, and the total is exact.

    Args:
        group: Mean rollouts of a drawn prompt, at least `fewest`.
        fewest: Fewest rollouts of a drawn prompt.
        temperature: tau, positive; large values draw uniformly. The paper's value was not found.
        seed: Seeds the draws and the ties.

    >>> from budgetalloc import Budget
    >>> policy = cures(seed=0)
    >>> policy.observe(["half"] * 8 + ["easy"] * 8, [0, 1] * 4 + [1] * 8)
    >>> policy.allocate(["half", "easy"], Budget(rollouts=16, floor=0))
    array([10,  6])
    """
    check_integer("group", group, 1)
    check_integer("fewest", fewest, 1, group)
    check_number("temperature", temperature, 0, math.inf, without=(0,))

    def decide(view: View) -> IntArray:
        mean_P = view.belief_P.mean
        spread_P = np.sqrt(mean_P * (1 - mean_P) * view.belief_P.spread_P)
        budget, rollouts = view.budget, rollouts_alone(view.budget)
        if rollouts is None:
            return spend(view.belief_P, top(spread_P + 1e-12, group), view, None)
        chosen_P = np.arange(len(mean_P))
        if budget.fewest == 0:
            low = max(budget.smallest_group, fewest // budget.quantum * budget.quantum)
            number = max(rollouts // max(group, low), -(-rollouts // budget.largest_group))
            if number * low > rollouts:
                low = budget.smallest_group
            # The largest sums with Gumbel noise are a draw without replacement with these
            # probabilities.
            keys_P = spread_P / temperature + view.rng.gumbel(size=len(mean_P))
            chosen_P = np.sort(np.argsort(-keys_P, kind="stable")[:number])
            budget = replace(budget, floor=low)
        counts_P = np.zeros(len(mean_P), dtype=np.int64)
        counts_P[chosen_P] = proportional(spread_P[chosen_P], None, budget)
        return counts_P

    name = f"cures(group={group}, fewest={fewest}, temperature={temperature}, seed={seed})"
    estimator = BetaEstimator(prior=(1.0, 1.0))
    return Policy(name, decide, estimator, seed, Needs(candidates="all", baseline="group"))
