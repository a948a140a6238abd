"""Reinforce-Ada: rounds until a prompt has enough successes and failures."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.methods.downselect import balanced
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.rounds import until_finished


@method("in rounds", "released code", of_rates=True)
def reinforce_ada(
    *,
    group: Count = 8,
    more: Count | None = None,
    stages: Count = 4,
    quota: Literal["balanced", "positive"] = "balanced",
    seed: int = 0,
) -> Policy:
    """Reinforce-Ada (arXiv 2510.04996): rounds of n until n/2 successes and n/2 failures; n rows
    are trained on.

    The released setting is group=4, more=8, stages=4: rounds of 8 until 2 successes and 2 failures,
    at most 4 of them; there a graded success counts from 0.7, here by its share. quota='positive'
    stops at one success. No estimation variant. Advantages are over all generated rollouts.

    The budget is a limit, of which only what is trained on is always spent.

    Args:
        group, more: Rows of a prompt that are trained on; rollouts of a round, None for as many.

    >>> from budgetalloc import Budget
    >>> step = reinforce_ada(group=2, stages=3).begin(["a", "b"], Budget(rollouts=12, floor=2))
    >>> step.request()
    array([2, 2])
    >>> step.observe(["a", "a", "b", "b"], [0, 0, 0, 1]); step.request()
    array([2, 0])
    """
    each = group if more is None else more
    generate = -(-each * stages // group)
    wins, fails = (max(1, group // 2), max(1, group // 2)) if quota == "balanced" else (1, 0)

    def finished(seen: ByPrompt) -> NDArray[np.bool_]:
        failures_P = seen.n_P - seen.successes_P
        return np.asarray((seen.successes_P >= wins) & (failures_P >= fails))

    def decide(view: View) -> Rounds:
        trained = -(-view.rollouts_only("reinforce_ada") // generate)
        return until_finished(view, each, each, each * stages, finished, trained)

    return policy(decide, keep=balanced, generate=generate, by_group=True)
