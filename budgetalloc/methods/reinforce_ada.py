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
    group: Count = 4,
    more: Count = 8,
    stages: Count = 4,
    quota: Literal["balanced", "positive"] = "balanced",
    seed: int = 0,
) -> Policy:
    """Continues each prompt in rounds until it has enough successes and failures, then trains on a
    fixed number of its rows. It is meant to leave fewer groups with equal rewards and no gradient.

    Formula: rounds of 8 until 2 successes and 2 failures, 4 at most; 4 rows are trained on.

    Source: Reinforce-Ada (arXiv 2510.04996). Compared with the released code, which gives the
    defaults, for a trainer's group size of 4. There a graded success counts if it is above 0.7,
    here by its share, unless the trainer's `success=` has that threshold. The estimation variant is
    left out.

    Advantages are over all generated rollouts. The budget is a limit, of which only what is trained
    on is always spent.

    Args:
        group: Rows of a prompt that are trained on.
        more, stages: Rollouts of a round; most rounds.
        quota: "balanced", half of `group` successes and half failures, or "positive", one success.

    >>> from budgetalloc import Budget
    >>> step = reinforce_ada(group=2, more=2).begin(["a", "b"], Budget(rollouts=12, floor=2))
    >>> step.request()
    array([2, 2])
    >>> step.observe(["a", "a", "b", "b"], [0, 0, 0, 1]); step.request()
    array([2, 0])
    """
    generate = -(-more * stages // group)
    wins, fails = (max(group // 2, 1), group - group // 2) if quota == "balanced" else (1, 0)

    def finished(seen: ByPrompt) -> NDArray[np.bool_]:
        failures_P = seen.n_P - seen.successes_P
        return np.asarray((seen.successes_P >= wins) & (failures_P >= fails))

    def decide(view: View) -> Rounds:
        trained = -(-view.rollouts_only("reinforce_ada") // generate)
        return until_finished(view, more, more, more * stages, finished, trained)

    return policy(decide, keep=balanced, generate=generate, by_group=True)
