"""Groups of equal size for the prompts with the highest scores."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray, rollouts_alone
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import View
from budgetalloc.solvers.interface import largest
from budgetalloc.values import Value

__all__ = ["drawn_first", "falling", "ranked", "spend_on_top", "top"]


def top(scores_P: FloatArray, group: int) -> Value:
    """The value with which a solver gives `group` rollouts each to the prompts with the highest
    (positive) scores.

    Each rollout up to `group` adds the score, further rollouts nothing: a surplus is spread after
    all groups are full.

    >>> from budgetalloc import Budget, Point, greedy
    >>> budget, belief = Budget(rollouts=10, floor=0, cap=8), Point([0.5, 0.5, 0.5])
    >>> greedy(top(np.array([0.1, 0.3, 0.2]), 4)(belief, budget.grid()), None, budget)
    array([2, 4, 4])
    """

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        return np.outer(scores_P, np.minimum(np.asarray(counts_N, dtype=np.float64), group))

    return value


def ranked(scores_P: FloatArray, group: int, view: View) -> IntArray:
    """Counts of `group` rollouts for each prompt with one of the highest scores, regardless of
    costs.

    Scores are positive. Cost does not change the order, even under a budget in tokens.
    """
    if view.budget.rollouts is None and view.costs_P is not None:
        scores_P = scores_P * view.costs_P
    return spend_on_top(scores_P, group, view)


def spend_on_top(scores_P: FloatArray, group: int, view: View) -> IntArray:
    """`spend` with the value `top` of these scores, which are divided by cost under a budget in
    tokens."""
    budget, rollouts, fits = view.budget, rollouts_alone(view.budget), len(scores_P)
    if rollouts is not None and budget.fewest == 0:
        # solving for only these is fast in large pools
        fits = min(fits, rollouts // budget.smallest_group + 1)
    best = largest(scores_P, fits)
    counts_P = np.zeros(len(scores_P), dtype=np.int64)
    few = replace(view, costs_P=None if view.costs_P is None else view.costs_P[best])
    counts_P[best] = spend(view.belief_P.take(best), top(scores_P[best], group), few, None)
    return counts_P


def drawn_first(weights_P: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Scores for `ranked` that fall in a random order, drawn without replacement in proportion to
    positive weights.

    >>> rng = np.random.default_rng(0)
    >>> first = [int(np.argmax(drawn_first(np.array([6.0, 3.0, 1.0]), rng))) for _ in range(2000)]
    >>> np.bincount(first) / 2000
    array([0.605, 0.301, 0.094])
    """
    return falling(np.argsort(rng.exponential(size=len(weights_P)) / weights_P, kind="stable"))


def falling(order_P: IntArray) -> FloatArray:
    """Positive scores for `ranked` that fall in this order of the prompts' indices.

    >>> falling(np.array([2, 0, 1]))
    array([1.5, 1. , 2. ])
    """
    scores_P = np.empty(len(order_P))
    scores_P[order_P] = np.linspace(2.0, 1.0, len(order_P))
    return scores_P
