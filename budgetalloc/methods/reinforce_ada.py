"""Reinforce-Ada: rounds until a prompt has enough successes and failures."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from budgetalloc.methods.downselect import balanced
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy, Tally, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.rounds import until_finished


@method("in rounds", "paper's formulas", of_rates=True)
def reinforce_ada(
    *,
    group: Count = 8,
    stages: Count = 4,
    quota: Literal["balanced", "positive"] = "balanced",
    seed: int = 0,
) -> Policy:
    """Reinforce-Ada (arXiv 2510.04996): rounds of n until n/2 successes and n/2 failures; n rows
    are trained on.

    quota='positive' stops at one success. The number of rounds is our default. No estimation
    variant. Advantages are over all generated rollouts. Graded success of 0.5 counts as half.

    The budget is a limit, of which only the share `1 / stages` is always spent.

    >>> from budgetalloc import Budget
    >>> step = reinforce_ada(group=2, stages=3).begin(["a", "b"], Budget(rollouts=12, floor=2))
    >>> step.request()
    array([2, 2])
    >>> step.observe(["a", "a", "b", "b"], [0, 0, 0, 1]); step.request()
    array([2, 0])
    """
    wins, fails = (max(1, group // 2), max(1, group // 2)) if quota == "balanced" else (1, 0)

    def finished(tally: Tally) -> NDArray[np.bool_]:
        failures_P = tally.scored_P - tally.successes_P
        return np.asarray((tally.successes_P >= wins) & (failures_P >= fails))

    def decide(view: View) -> Rounds:
        trained = -(-view.rollouts_only("reinforce_ada") // stages)
        return until_finished(view, group, group, group * stages, finished, trained)

    return policy(decide, keep=balanced, generate=stages, by_group=True)
