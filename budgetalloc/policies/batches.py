"""Which prompts a step has room for, drawn at random or in an order, and counts in proportion to what they want."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.policies.compose import spend
from budgetalloc.policies.decision import View
from budgetalloc.solvers.base import check_costs
from budgetalloc.solvers.proportional import proportional
from budgetalloc.values import Value


def batch(wanted_P: IntArray, view: View, order_P: IntArray | None = None, most: int | None = None) -> IntArray:
    """Places of the first prompts, in this order, whose wants fit into the budget together; at least one.

    Args:
        wanted_P: Rollouts that each prompt wants.
        view: Of the decision; its order, which is random, is the default order.
        order_P: Places of the prompts.
        most: Prompts, unless the budget's cap needs more of them.
    """
    budget, prompts = view.budget, len(wanted_P)
    order = np.arange(prompts) if order_P is None else order_P
    floor = budget.smallest_group if budget.floor else 0  # every prompt has it
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
        number = min(number, int(np.searchsorted(spent, budget.tokens - floor * costs_P.sum(), side="right")))
    return order[: max(number, 1)]


def keep_only(wanted_P: IntArray, chosen: IntArray) -> IntArray:
    """The wants of the chosen prompts, 0 for all others."""
    kept_P = np.zeros_like(wanted_P)
    kept_P[chosen] = wanted_P[chosen]
    return kept_P


def in_proportion(wanted_P: IntArray, view: View) -> IntArray:
    """Counts in proportion to what is wanted; a prompt that wants 0 gets only what the budget
    gives to all prompts, or cannot place elsewhere.

    Wants that add up to the budget and keep to its sizes are met exactly. With `floor=0`, wants come from `batch`.
    """
    budget = view.budget
    if budget.rollouts is None or budget.tokens is not None or budget.quotas is not None:
        return spend(view.belief_P, _shares(wanted_P, view), view, None)
    if budget.floor:
        return proportional(wanted_P, None, budget)
    chosen = np.flatnonzero(wanted_P)
    counts_P = np.zeros(len(wanted_P), dtype=np.int64)
    counts_P[chosen] = proportional(wanted_P[chosen], None, replace(budget, floor=budget.smallest_group))
    return counts_P


def _shares(wanted_P: IntArray, view: View) -> Value:
    """Webster's rule as a value: the n-th rollout is worth less the larger (n - 1/2) / wanted.

    Prompts that want 0 come last. Gains are positive, and per token where only tokens are limited, so that any budget
    is spent.
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
    """With `floor=0`, the view of a batch drawn at random, in which every prompt has at least the smallest group.

    The batch is the first prompts of the view, whose order is drawn anew at each step: as many as groups of `group`
    fit into the budget. With a floor, in tokens or with quotas it is the view itself.
    """
    budget = view.budget
    if budget.floor or budget.rollouts is None or budget.tokens is not None or budget.quotas is not None:
        return view
    low, rollouts = budget.smallest_group, int(budget.rollouts)
    number = max(rollouts // max(group, low), -(-rollouts // budget.largest_group))
    number = min(number, len(view.belief_P))
    return replace(
        view,
        belief_P=view.belief_P.take(np.arange(number)),
        ids_P=view.ids_P[:number],
        budget=replace(budget, floor=low),
    )
