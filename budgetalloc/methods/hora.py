"""HORA: a pilot, then rollouts for the prompts most likely to succeed once more."""

from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.posterior import Beta
from budgetalloc.budget import Budget
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import Rounds
from budgetalloc.values import pass_at_n


@method("in rounds", "a description", of_rates=True)
def hora(*, pilot: Count = 4, seed: int = 0) -> Policy:
    """Gives the rollouts after a pilot to the prompts where they add most to the chance of a
    further success. It is meant for trainings judged by pass@k: the paper reports more of it, at
    comparable pass@1.

    Formula: a pilot, then greedy on 1 - E[(1-p)^m] under Beta(1 + s, 1 + f).

    Source: HORA (arXiv 2605.07114). Compared with a description only. The size of the pilot is our
    default.

    Rewards of earlier steps are not used. Graded success of 0.5 counts as half a success and half a
    failure.

    >>> from budgetalloc import Budget
    >>> step = hora(pilot=4).begin(["none", "half", "all"], Budget(rollouts=24))
    >>> step.request()
    array([4, 4, 4])
    >>> step.observe(["none"] * 4 + ["half"] * 4 + ["all"] * 4, [0] * 4 + [0, 1] * 2 + [1] * 4)
    >>> step.request()
    array([6, 4, 2])
    """

    def decide(view: View) -> Rounds:
        rollouts, prompts, budget = view.rollouts_only("hora"), len(view.ids_P), view.budget
        low, high, quantum = budget.smallest_group, budget.largest_group, budget.quantum
        share = rollouts // prompts // quantum * quantum
        first = max(low, min(-(-pilot // quantum) * quantum, share, high))
        number = min(prompts, rollouts // first)  # the rest can be spent on them
        seen = yield first * (np.arange(prompts) < number)
        left = rollouts - first * number
        if left:
            failures_P = seen.n_P - seen.successes_P
            belief = Beta(1 + seen.successes_P[:number], 1 + failures_P[:number])
            rest = Budget(left, floor=0, min_group=1, quantum=quantum, cap=high - first)
            more_P = np.zeros(prompts, dtype=np.int64)
            more_P[:number] = spend(belief, pass_at_n, replace(view, budget=rest), None)
            yield more_P

    return policy(decide, prior=(1.0, 1.0))
