"""Prompts that fit into a step's budget, and counts in proportion to wanted rollouts."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray, rollouts_alone
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import View
from budgetalloc.solvers.interface import check_costs
from budgetalloc.solvers.proportional import proportional
from budgetalloc.values import Value

__all__ = ["batch", "drawn_batch", "in_proportion", "keep_only"]


def batch(
    wanted_P: IntArray, view: View, order_P: IntArray | None = None, most: int | None = None
) -> IntArray:
    """Indices of the first prompts in an order whose wanted rollouts fit into the budget together;
    at least one.

    Args:
        wanted_P: Wanted rollouts of each prompt, shape (P,).
        view: The view of the decision.
        order_P: The order as indices of the prompts; by default the view's, which is random.
        most: Largest number of prompts, unless the budget's cap requires more.
    """
    budget, prompts = view.budget, len(wanted_P)
    order = np.arange(prompts) if order_P is None else order_P
    floor = budget.smallest_group if budget.fewest else 0  # every prompt gets the floor
    extra_P = np.clip(wanted_P, budget.smallest_group, budget.largest_group) - floor
    number = prompts if most is None else most
    if budget.rollouts is not None:
        left = budget.rollouts - prompts * floor
        number = min(number, int(np.searchsorted(np.cumsum(extra_P[order]), left, side="right")))
        if not floor:
            number = max(number, -(-budget.rollouts // budget.largest_group))
    if budget.tokens is not None:
        costs_P = check_costs(view.costs_P, prompts)
        spent = np.cumsum((extra_P * costs_P)[order])
        number = min(
            number, int(np.searchsorted(spent, budget.tokens - floor * costs_P.sum(), side="right"))
        )
    return order[: max(number, 1)]


def keep_only(wanted_P: IntArray, chosen: IntArray) -> IntArray:
    """The wanted rollouts of the chosen prompts, 0 for all others."""
    kept_P = np.zeros_like(wanted_P)
    kept_P[chosen] = wanted_P[chosen]
    return kept_P


def in_proportion(wanted_P: IntArray, view: View) -> IntArray:
    """Counts in proportion to `wanted_P`, which is the result if it adds up to the budget and has
    allowed group sizes.

    A prompt that wants 0 gets the floor, and what no other prompt can take. With `floor=0`, use
    `batch` first.
    """
    budget = view.budget
    if rollouts_alone(budget) is None:
        return spend(view.belief_P, _shares(wanted_P, view), view, None)
    if budget.fewest:
        return proportional(wanted_P, None, budget)
    chosen = np.flatnonzero(wanted_P)
    counts_P = np.zeros(len(wanted_P), dtype=np.int64)
    counts_P[chosen] = proportional(
        wanted_P[chosen], None, replace(budget, floor=budget.smallest_group)
    )
    return counts_P


def _shares(wanted_P: IntArray, view: View) -> Value:
    """Webster's rule as a value: the gain of the n-th rollout falls with (n - 1/2) / wanted, and is
    positive.

    Prompts that want 0 come last. If only tokens are limited, gains are multiplied by costs, by
    which a solver divides.
    """
    prices_P = np.ones(len(wanted_P))
    if view.budget.rollouts is None:
        prices_P = check_costs(view.costs_P, len(wanted_P))
    size_P = np.where(wanted_P > 0, wanted_P, 1)
    steep_P = 1 / (size_P * (view.budget.largest_group / size_P.min()))

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        counts = np.asarray(counts_N, dtype=np.float64)
        gains_PN = np.where(wanted_P > 0, 4.0, 2.0)[:, None] - np.outer(steep_P, counts)
        return np.asarray(prices_P[:, None] * counts * gains_PN)

    return value


def drawn_batch(view: View, group: int) -> View:
    """With `floor=0`, the view of a random batch, in which every prompt gets at least the smallest
    group.

    The batch has as many prompts as groups of `group` fit into the budget. With a floor, a budget
    in tokens or quotas, the view is returned unchanged.
    """
    budget, rollouts = view.budget, rollouts_alone(view.budget)
    if budget.fewest or rollouts is None:
        return view
    low = budget.smallest_group
    number = max(rollouts // max(group, low), -(-rollouts // budget.largest_group))
    number = min(number, len(view.belief_P))
    return replace(
        view,
        belief_P=view.belief_P.take(np.arange(number)),
        ids_P=view.ids_P[:number],
        budget=replace(budget, floor=low),
    )
