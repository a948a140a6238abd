"""The best-scored prompts, a group of equal size each."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.policies.composition import spend
from budgetalloc.policies.decision import View
from budgetalloc.solvers.interface import largest
from budgetalloc.values import Value


def top(scores_P: FloatArray, group: int) -> Value:
    """The value that makes a solver take the best-scored prompts, `group` rollouts each; scores are positive.

    Each rollout up to `group` has the value `score`, further rollouts 0, so that a surplus is spread only after all
    groups are full.

    >>> from budgetalloc import Budget, Point
    >>> from budgetalloc import greedy
    >>> budget, belief = Budget(rollouts=10, floor=0, cap=8), Point([0.5, 0.5, 0.5])
    >>> greedy(top(np.array([0.1, 0.3, 0.2]), 4)(belief, budget.grid()), None, budget)
    array([2, 4, 4])
    """

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        return np.outer(scores_P, np.minimum(np.asarray(counts_N, dtype=np.float64), group))

    return value


def ranked(scores_P: FloatArray, group: int, view: View) -> IntArray:
    """The best-scored prompts, `group` rollouts each; scores are positive.

    The order of the prompts does not depend on their costs, also under a budget in tokens.
    """
    if view.budget.rollouts is None and view.costs_P is not None:
        scores_P = scores_P * view.costs_P
    return spend_on_top(scores_P, group, view)


def spend_on_top(scores_P: FloatArray, group: int, view: View) -> IntArray:
    """`spend` with the value `top` of these scores, which are per token under a budget in tokens."""
    budget, prompts = view.budget, len(scores_P)
    fits = prompts  # at most this many groups fit: pricing only these keeps a pool of 100,000 fast
    if budget.rollouts is not None and budget.tokens is None and budget.quotas is None and budget.fewest == 0:
        fits = min(prompts, budget.rollouts // budget.smallest_group + 1)
    best = largest(scores_P, fits)
    counts_P = np.zeros(prompts, dtype=np.int64)
    few = replace(view, costs_P=None if view.costs_P is None else view.costs_P[best])
    counts_P[best] = spend(view.belief_P.take(best), top(scores_P[best], group), few, None)
    return counts_P


def drawn_first(weights_P: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Scores for `ranked` that fall along a draw of all prompts without replacement, in proportion to these weights.

    Args:
        weights_P: Positive, shape (P,).
        rng: Generator; one number is drawn per prompt.

    >>> rng = np.random.default_rng(0)
    >>> first = [int(np.argmax(drawn_first(np.array([6.0, 3.0, 1.0]), rng))) for _ in range(2000)]
    >>> np.bincount(first) / 2000
    array([0.605, 0.301, 0.094])
    """
    return falling(np.argsort(rng.exponential(size=len(weights_P)) / weights_P, kind="stable"))  # of these arrivals


def falling(order_P: IntArray) -> FloatArray:
    """Positive scores for `ranked` that fall along this order of the prompts' indices.

    >>> falling(np.array([2, 0, 1]))
    array([1.5, 1. , 2. ])
    """
    scores_P = np.empty(len(order_P))
    scores_P[order_P] = np.linspace(2.0, 1.0, len(order_P))
    return scores_P
