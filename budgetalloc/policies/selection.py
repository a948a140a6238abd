"""Published methods that choose which prompts to roll out, before anything is generated."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.policies.base import Policy
from budgetalloc.policies.compose import spend
from budgetalloc.policies.decision import Needs, View
from budgetalloc.solvers.proportional import proportional
from budgetalloc.values import Value


def top(scores_P: FloatArray, group: int) -> Value:
    """The value that makes a solver take the best-scored prompts, `group` rollouts each; scores are positive.

    Worth `score` a rollout up to `group` and nothing beyond, so that a surplus is spread only where all are full.

    >>> from budgetalloc import Budget, Point
    >>> from budgetalloc import greedy
    >>> budget, belief = Budget(rollouts=10, floor=0, cap=8), Point([0.5, 0.5, 0.5])
    >>> greedy(top(np.array([0.1, 0.3, 0.2]), 4)(belief, budget.grid()), None, budget)
    array([2, 4, 4])
    """

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        return np.outer(scores_P, np.minimum(np.asarray(counts_N, dtype=np.float64), group))

    return value


def vade(*, group: int = 8, discount: float = 0.2, idle: float = 0.999, seed: int = 0) -> Policy:
    """The prompts whose Thompson draw has the largest p (1-p)^2, a group of equal size each (arXiv 2511.18902).

    The evidence of a chosen prompt is cut to `discount`, that of the others to `idle` (two-scale decay); the prior is
    Beta(1, 1). The paper's figures suggest 0.2, 0.999 and groups of 8, which are not printed in its text.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        discount, idle: Of `BetaEstimator`.
        seed: Of the draws and ties.

    >>> from budgetalloc import Budget
    >>> vade(seed=0).allocate(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    array([0, 0, 8, 8])
    """
    check_group(group)

    def decide(view: View) -> IntArray:
        drawn = view.belief_P.sample(view.rng)
        return spend(drawn, top(drawn.moment(1, 2) + 1e-12, group), view, None)

    name = f"vade(group={group}, discount={discount}, idle={idle}, seed={seed})"
    estimator = BetaEstimator(prior=(1.0, 1.0), discount=discount, idle=idle)
    return Policy(name, decide, estimator, seed, Needs(candidates="all", baseline="group"))


def cures(*, group: int = 8, fewest: int = 4, temperature: float = 0.1, seed: int = 0) -> Policy:
    """Prompts drawn with probability proportional to exp(sqrt(p(1-p)) / temperature), then counts by Neyman's rule.

    CurES (arXiv 2510.01037): counts are proportional to sigma, for which the Bernoulli deviation sqrt(p(1-p)) stands
    where gradient norms are not known; p is the posterior mean under Beta(1, 1) with no forgetting. Prompts are drawn
    without replacement, as many as groups of `group` fit into the budget. The released code differs: its temperature
    grows with the successes, so that it samples uniformly to within 0.5 %, its posterior is never updated, and a
    prompt without spread gets nothing; here it keeps `fewest`, and the total is exact.

    Args:
        group: Mean rollouts of a drawn prompt, at least `fewest`.
        fewest: Fewest rollouts of a drawn prompt.
        temperature: tau, positive; large is uniform. The paper's value is not known to us.
        seed: Of the draws and ties.

    >>> from budgetalloc import Budget
    >>> policy = cures(seed=0)
    >>> policy.observe(["half"] * 8 + ["easy"] * 8, [0, 1] * 4 + [1] * 8)
    >>> policy.allocate(["half", "easy"], Budget(rollouts=16, floor=0))
    array([10,  6])
    """
    check_group(group)
    if not 1 <= fewest <= group:
        raise InputError(f"fewest={fewest!r}: use 1 to group={group}.")
    if not temperature > 0:
        raise InputError(f"temperature={temperature!r}: use a positive number, such as 0.1.")

    def decide(view: View) -> IntArray:
        mean_P = view.belief_P.mean
        spread_P = np.sqrt(mean_P * (1 - mean_P))
        if view.budget.rollouts is None or view.budget.tokens is not None or view.budget.quotas is not None:
            return spend(view.belief_P, top(spread_P + 1e-12, group), view, None)
        budget, rollouts = view.budget, int(view.budget.rollouts)
        chosen_P = np.arange(len(mean_P))
        if budget.floor == 0:
            low = max(budget.smallest_group, fewest // budget.quantum * budget.quantum)
            number = max(rollouts // max(group, low), -(-rollouts // budget.largest_group))
            if number * low > rollouts:
                low = budget.smallest_group
            # Gumbel noise and the largest: a draw without replacement with these probabilities.
            keys_P = spread_P / temperature + view.rng.gumbel(size=len(mean_P))
            chosen_P = np.sort(np.argsort(-keys_P, kind="stable")[:number])
            budget = replace(budget, floor=low)
        counts_P = np.zeros(len(mean_P), dtype=np.int64)
        counts_P[chosen_P] = proportional(spread_P[chosen_P], None, budget)
        return counts_P

    name = f"cures(group={group}, fewest={fewest}, temperature={temperature}, seed={seed})"
    estimator = BetaEstimator(prior=(1.0, 1.0))
    return Policy(name, decide, estimator, seed, Needs(candidates="all", baseline="group"))


def check_group(group: int) -> None:
    """Raises `InputError` unless a group has at least one rollout."""
    if isinstance(group, bool) or not isinstance(group, (int, np.integer)) or group < 1:
        raise InputError(f"group={group!r}: use an integer of at least 1, such as 8.")
