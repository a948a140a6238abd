"""Published methods that spend a step on few prompts with many rollouts each, and how a batch is cut to the budget."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number
from budgetalloc.policies.base import Policy
from budgetalloc.policies.compose import spend
from budgetalloc.policies.decision import Needs, View
from budgetalloc.solvers.base import check_costs
from budgetalloc.solvers.proportional import proportional
from budgetalloc.values import Value

Phase = tuple[float, int, int]
_DRIVE: tuple[Phase, ...] = ((1.0, 32, 8), (72 / 175, 64, 64), (50 / 175, 32, 64), (25 / 175, 32, 64))


def breadth_depth(rollouts: int, group: int) -> int:
    """The prompts that a step of `rollouts` rollouts has room for with `group` each; at least one.

    BroRL (arXiv 2510.01180) goes from 512 prompts of 16 to 128 prompts of 512, which is 8 times the rollouts. At equal
    rollouts, depth costs breadth:

    >>> breadth_depth(512 * 16, 16), breadth_depth(512 * 16, 512), breadth_depth(128 * 512, 512)
    (512, 16, 128)
    """
    return max(1, check_integer("rollouts", rollouts, 1) // check_integer("group", group, 1))


def lr_scale(batch: float, base_batch: float) -> float:
    """The factor of the learning rate for another batch size, sqrt(batch / base_batch) (BroRL, arXiv 2510.01180).

    Count both in rollouts (our reading): their ratio is then that of the mini-batches, whose number BroRL keeps.

    >>> round(lr_scale(128 * 512, 512 * 16), 4)
    2.8284
    """
    above = check_number("batch", batch, 0, math.inf, without=(0,))
    return math.sqrt(above / check_number("base_batch", base_batch, 0, math.inf, without=(0,)))


def brorl(*, group: int = 512, seed: int = 0) -> Policy:
    """Few prompts with very many rollouts each: BroRL's broadened exploration (arXiv 2510.01180).

    The paper multiplies the rollouts of a prompt (16 to 512) and of a step (by 8). Here the step's budget is what it
    is, and `breadth_depth` says how many prompts it has room for; they are drawn at random, all with the same chance,
    and get at least `group` each unless the budget or its cap is smaller. No reward enters, so that no estimate is
    biased by the choice. With a floor every prompt gets the floor first. Scale the learning rate by `lr_scale` if the
    budget grows too.

    Args:
        group: Rollouts of a drawn prompt, at least 1. Set it to what the budget can bear; the paper's is 512.
        seed: Of the draws.

    >>> from budgetalloc import Budget
    >>> brorl(group=16, seed=0).allocate(["a", "b", "c", "d"], Budget(rollouts=32, floor=0))
    array([16, 16,  0,  0])
    """
    check_integer("group", group, 1)

    def decide(view: View) -> IntArray:
        wanted_P = np.full(len(view.belief_P), group)
        return in_proportion(keep_only(wanted_P, batch(wanted_P, view)), view)

    needs = Needs(candidates="all", baseline="group")
    return Policy(f"brorl(group={group}, seed={seed})", decide, BetaEstimator(), seed, needs)


def drive(*, phases: Sequence[Phase] = _DRIVE, discount: float = 0.9, seed: int = 0) -> Policy:
    """Phases that keep ever fewer of the hardest prompts, with many rollouts each (DRIVE, arXiv 2511.06307).

    A phase is (keep, steps, n): for `steps` steps only the share `keep` of the prompts on offer with the lowest
    posterior means is trained on, n rollouts each; where the step has no room for all of them they are drawn at random.
    The last phase does not end. The paper's first stage gives 8 rollouts to each of 9k prompts for 32 steps; its second
    keeps the hardest 72, 50 and 25 of 175 other prompts for 64, 32 and 32 steps. How many rollouts the second stage
    uses the paper states twice: 64 in the abstract and the setup, 80 in the method section. We default to 64.

    The paper evaluates the 175 prompts once, before that stage. Here the posterior mean of all earlier rewards stands
    in, so that a prompt which is solved makes room for another; a prompt never seen counts as the prior's 1/2, neither
    hard nor easy. What the kept prompts leave of the budget goes to them too, evenly; with a floor every prompt gets
    the floor first. Prompts that are not kept may get nothing ever again: that is the method.

    Args:
        phases: At least one of (keep, steps, n): keep in (0, 1], steps and n at least 1.
        discount: Of `BetaEstimator`; ours.
        seed: Of the draws and ties.

    >>> from budgetalloc import Budget
    >>> policy = drive(phases=[(1.0, 1, 8), (0.25, 1, 16)], seed=0)
    >>> ids, budget = ["easy", "half", "never", "new"], Budget(rollouts=16, floor=0)
    >>> policy.allocate(ids, budget)
    array([0, 8, 0, 8])
    >>> policy.observe(["easy"] * 8 + ["half"] * 8 + ["never"] * 8, [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(ids, budget)
    array([ 0,  0, 16,  0])
    """
    checked = [_check_phase(phase) for phase in phases]
    if not checked:
        raise InputError(f"phases={phases!r}: give at least one (keep, steps, n), such as (0.4, 64, 64).")
    ends = np.cumsum([steps for _, steps, _ in checked[:-1]])

    def decide(view: View) -> IntArray:
        keep, _, n = checked[int(np.searchsorted(ends, view.step, side="right"))]
        hardest = np.argsort(view.belief_P.mean, kind="stable")
        number = max(1, round(keep * len(hardest)))
        # The kept ones in the view's order, which is random; the others, for a cap that needs more prompts, after them.
        order = np.concatenate([np.sort(hardest[:number]), hardest[number:]])
        wanted_P = np.full(len(hardest), n)
        return in_proportion(keep_only(wanted_P, batch(wanted_P, view, order, number)), view)

    shown = ", ".join(f"({keep:.4g}, {steps}, {n})" for keep, steps, n in checked)
    name = f"drive(phases=[{shown}], discount={discount}, seed={seed})"
    return Policy(name, decide, BetaEstimator(discount=discount), seed, Needs(candidates="all", baseline="group"))


def _check_phase(phase: Phase) -> Phase:
    if not isinstance(phase, (tuple, list)) or len(phase) != 3:
        raise InputError(f"phases holds {phase!r}: a phase is (keep, steps, n), such as (0.4, 64, 64).")
    keep, steps, n = phase
    share = check_number("keep", keep, 0, 1, without=(0,))
    return share, check_integer("steps", steps, 1), check_integer("n", n, 1)


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
    floor = budget.smallest_group if budget.floor else 0  # everybody has it
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
    """Counts in proportion to what is wanted; who wants 0 gets only what the budget gives to all, or cannot place.

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
    """Webster's rule as a value: the n-th rollout is worth less the larger (n - 1/2) / wanted; who wants 0 comes last.

    Gains are positive, and per token where only tokens are limited, so that any budget is spent.
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
