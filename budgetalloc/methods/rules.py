"""What the rules of methods share: prompts in an order or a batch, visits and advantages."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.beliefs.rewards import extremes, mixed_groups
from budgetalloc.budget import Budget, IntArray, rollouts_alone
from budgetalloc.policies import View
from budgetalloc.policies.composition import spend, top
from budgetalloc.solvers.interface import check_costs, largest
from budgetalloc.solvers.proportional import proportional
from budgetalloc.values import Value


def ranked(scores_P: FloatArray, group: int, view: View) -> IntArray:
    """Counts of `group` rollouts for each prompt with one of the highest scores, which are
    positive. Costs do not change the order, even under a budget in tokens."""
    if view.budget.rollouts is None and view.costs_P is not None:
        scores_P = scores_P * view.costs_P
    return spend_on_top(scores_P, group, view)


def spend_on_top(scores_P: FloatArray, group: int, view: View) -> IntArray:
    """As `ranked`, but under a budget in tokens the scores are divided by costs."""
    budget, rollouts, fits = view.budget, rollouts_alone(view.budget), len(scores_P)
    if rollouts is not None and budget.fewest == 0:
        # solving for only these is fast in large pools
        fits = min(fits, rollouts // budget.smallest_group + 1)
    best = largest(scores_P, fits)
    counts_P = np.zeros(len(scores_P), dtype=np.int64)
    few = replace(view, costs_P=None if view.costs_P is None else view.costs_P[best])
    counts_P[best] = spend(view.belief_P.take(best), top(scores_P[best], group), few, None)
    return counts_P


def falling(order_P: IntArray) -> FloatArray:
    """Positive scores for `ranked` that fall in this order of the prompts' indices.

    >>> falling(np.array([2, 0, 1]))
    array([1.5, 1. , 2. ])
    """
    scores_P = np.empty(len(order_P))
    scores_P[order_P] = np.linspace(2.0, 1.0, len(order_P))
    return scores_P


def drawn_first(weights_P: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Scores for `ranked` that fall in a random order, drawn without replacement in proportion to
    positive weights."""
    return falling(np.argsort(rng.exponential(size=len(weights_P)) / weights_P, kind="stable"))


def by_chance(chance_P: Callable[[View], FloatArray], group: int) -> Callable[[View], IntArray]:
    """The rule that takes each prompt with a probability, in random order, then the others."""

    def decide(view: View) -> IntArray:
        chance_draw_P, order_draw_P = view.rng.random((2, len(view.ids_P)))
        taken_P = chance_draw_P < chance_P(view)
        return ranked(taken_P + order_draw_P + 1e-12, group, view)

    return decide


def least_visited_first(group: int) -> Callable[[View], IntArray]:
    """The rule of shuffled epochs: the prompts with the fewest `count_visits`, in random order."""

    def decide(view: View) -> IntArray:
        return ranked(falling(np.argsort(view.recall["visits"], kind="stable")), group, view)

    return decide


def count_visits(memory: Memory, seen: ByPrompt) -> None:
    """The update of a memory's column "visits"."""
    memory.columns["visits"][memory.rows(seen.ids_P)] += 1


def batch(
    wanted_P: IntArray, view: View, order_P: IntArray | None = None, most: int | None = None
) -> IntArray:
    """Indices of the first prompts in an order whose wanted rollouts fit into the budget together;
    at least one.

    Args:
        wanted_P: Wanted rollouts of each prompt, shape (P,).
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
        left = budget.tokens - floor * costs_P.sum()
        spent = np.cumsum((extra_P * costs_P)[order])
        number = min(number, int(np.searchsorted(spent, left, side="right")))
    return order[: max(number, 1)]


def in_proportion(wanted_P: IntArray, view: View, chosen: IntArray | None = None) -> IntArray:
    """Counts in proportion to `wanted_P`, which is the result if it adds up to the budget and has
    allowed group sizes.

    Prompts that are not chosen get the floor, and what no other prompt can take.
    """
    if chosen is not None:
        kept_P = np.zeros_like(wanted_P)
        kept_P[chosen] = wanted_P[chosen]
        wanted_P = kept_P
    budget = view.budget
    if rollouts_alone(budget) is None:
        return spend(view.belief_P, _shares(wanted_P, view), view, None)
    if budget.fewest:
        return proportional(wanted_P, None, budget)
    some = np.flatnonzero(wanted_P)
    counts_P = np.zeros(len(wanted_P), dtype=np.int64)
    counts_P[some] = proportional(
        wanted_P[some], None, replace(budget, floor=budget.smallest_group)
    )
    return counts_P


def _shares(wanted_P: IntArray, view: View) -> Value:
    """Webster's rule as a value: the gain of the n-th rollout falls with (n - 1/2) / wanted, and is
    positive. Prompts that want 0 come last. If only tokens are limited, gains are multiplied by
    costs, by which a solver divides."""
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


def on_drawn_batch(value: Callable[[View], Value], group: int) -> Callable[[View], IntArray]:
    """The rule that spends the budget by a value, with `floor=0` on a random batch, in which every
    prompt gets at least the smallest group.

    The batch has as many prompts as groups of `group` fit into the budget. With a floor, a budget
    in tokens or quotas, all prompts are in it.
    """

    def decide(view: View) -> IntArray:
        budget, rollouts, prompts = view.budget, rollouts_alone(view.budget), len(view.belief_P)
        if not budget.fewest and rollouts is not None:
            low = budget.smallest_group
            number = min(groups_in(rollouts, max(group, low), budget), prompts)
            view = replace(
                view,
                belief_P=view.belief_P.take(np.arange(number)),
                ids_P=view.ids_P[:number],
                budget=replace(budget, floor=low),
            )
        counts_P = np.zeros(prompts, dtype=np.int64)
        counts_P[: len(view.belief_P)] = spend(view.belief_P, value(view), view, None)
        return counts_P

    return decide


def groups_in(rollouts: int, group: int, budget: Budget) -> int:
    """The groups of this size that rollouts suffice for; more, if their caps require it."""
    return max(rollouts // group, -(-rollouts // budget.largest_group))


def mean_advantage(rewards_R: ArrayLike, group_R: NDArray[np.int64], groups: int) -> FloatArray:
    """The mean absolute advantage of each group, in [0, 1], 0 if all rewards are equal, shape
    (groups,).

    Advantages are GRPO's (r - mean) / deviation, with the deviation over n, not n - 1. If rewards
    take two values, and a share m has the higher one, the result is 2 sqrt(m (1-m)).

    >>> rewards_R = [0, 0, 0, 1, 0.2, 1.0, 0.5, 0.5]
    >>> mean_advantage(rewards_R, np.repeat([0, 1, 2], [4, 2, 2]), 3).round(4)
    array([0.866, 1.   , 0.   ])
    """
    rewards = np.asarray(rewards_R, dtype=np.float64)
    low_G, high_G = extremes(rewards, group_R, groups)
    n_G = np.maximum(np.bincount(group_R, minlength=groups), 1)
    high_R = rewards == high_G[group_R]
    share_G = np.bincount(group_R[high_R], minlength=groups) / n_G
    between_G = np.bincount(group_R[~high_R & (rewards != low_G[group_R])], minlength=groups) > 0
    away_R = rewards - (np.bincount(group_R, weights=rewards, minlength=groups) / n_G)[group_R]
    mean_G = np.bincount(group_R, weights=np.abs(away_R), minlength=groups) / n_G
    square_G = np.bincount(group_R, weights=away_R**2, minlength=groups) / n_G
    with np.errstate(invalid="ignore"):  # 0 / 0 if all are equal
        many_G = mean_G / np.sqrt(square_G)
    two_G = 2.0 * np.sqrt(share_G * (1.0 - share_G))  # exact where rewards are 0 and 1
    mixed_G = mixed_groups(rewards, group_R, groups)
    return np.where(mixed_G, np.where(between_G, many_G, two_G), 0.0)


def latest_first(values_VK: FloatArray, newest_V: FloatArray) -> FloatArray:
    """A window of values by visit, the latest first, with a new one in front and without its last.

    >>> latest_first(np.array([[2.0, 1.0, 0.0]]), np.array([3.0]))
    array([[3., 2., 1.]])
    """
    return np.concatenate([newest_V[..., None], values_VK[..., :-1]], axis=-1)
