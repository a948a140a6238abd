"""HORA: a pilot, then rollouts for the prompts most likely to succeed once more."""

from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.budget import Budget
from budgetalloc.errors import check_integer
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import Needs, Rounds, View
from budgetalloc.policies.policy import Policy
from budgetalloc.values import hit

__all__ = ["hora", "pilots"]


def hora(*, pilot: int = 4, seed: int = 0) -> Policy:
    """A pilot of every prompt, then the rest to prompts most likely to succeed once more (HORA,
    arXiv 2605.07114).

    After a pilot with s successes and f failures the belief is Beta(1 + s, 1 + f), independent of
    earlier steps. The value of m more rollouts is the probability of a success among them, 1 -
    E[(1-p)^m] (`values.hit`). The second round maximises the sum exactly. Graded success of 0.5
    counts as half a success and half a failure.

    The pilot shrinks if the budget is too small for all prompts. Without a floor, if even the
    smallest groups do not fit, some prompts are left out, redrawn at each step. The paper's pilot
    size was not found; 4 is our default.

    Args:
        pilot: Rollouts of a pilot, at least 1.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> step = hora(pilot=4).begin(["none", "half", "all"], Budget(rollouts=24))
    >>> step.request()
    array([4, 4, 4])
    >>> step.observe(["none"] * 4 + ["half"] * 4 + ["all"] * 4, [0] * 4 + [0, 1] * 2 + [1] * 4); step.request()
    array([6, 4, 2])
    """
    check_integer("pilot", pilot, 1)

    def decide(view: View) -> Rounds:
        rollouts, prompts = view.rollouts_only("hora"), len(view.ids_P)
        first, number = pilots(pilot, view.budget, prompts)
        counts_P = first * (np.arange(prompts) < number)
        tally = yield counts_P
        left, quantum = rollouts - first * number, view.budget.quantum
        if left:
            seen = Beta(
                1 + tally.successes_P[:number], 1 + (tally.scored_P - tally.successes_P)[:number]
            )
            rest = Budget(
                left, floor=0, min_group=1, quantum=quantum, cap=view.budget.largest_group - first
            )
            more_P = np.zeros(prompts, dtype=np.int64)
            more_P[:number] = spend(seen, hit, replace(view, budget=rest), None)
            yield more_P

    estimator = BetaEstimator(prior=(1.0, 1.0))
    return Policy(
        f"hora(pilot={pilot}, seed={seed})", decide, estimator, seed, Needs(baseline="group")
    )


def pilots(pilot: int, budget: Budget, prompts: int) -> tuple[int, int]:
    """Rollouts of each pilot, and the number of pilots, chosen so that the rest of the budget can
    be spent on them."""
    low, quantum, rollouts = budget.smallest_group, budget.quantum, int(budget.rollouts or 0)
    share = rollouts // prompts // quantum * quantum
    size = max(low, min(-(-pilot // quantum) * quantum, share, budget.largest_group))
    return size, min(prompts, rollouts // size)
