"""Reinforce-Ada: rounds until a prompt has enough successes and failures."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.errors import check_choice, check_integer
from budgetalloc.methods.downselect.rules import balanced
from budgetalloc.policies.interface import Needs, Rounds, Tally, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.rounds import until_finished

__all__ = ["reinforce_ada"]


def reinforce_ada(
    *,
    group: int = 8,
    stages: int = 4,
    quota: Literal["balanced", "positive"] = "balanced",
    seed: int = 0,
) -> Policy:
    """Samples a prompt until it has `group / 2` successes and as many failures (Reinforce-Ada,
    arXiv 2510.04996).

    Each of up to `stages` rounds gives `group` rollouts to every prompt that lacks either. `group`
    rows of a prompt are then trained on, balanced where possible; advantages are computed over all
    generated rollouts. The budget is a limit, of which only the share `1 / stages` that is trained
    on is always spent. With `quota="positive"` one success is enough, the paper's lighter rule.
    Graded success of 0.5 counts as half a success and half a failure. The number of rounds is our
    default. The paper's estimation-based variant is not included.

    Args:
        group: Rollouts of a round, and of a prompt in training.
        stages: Most rounds.
        quota: "balanced" or "positive".
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> step = reinforce_ada(group=2, stages=3, seed=0).begin(["a", "b"], Budget(rollouts=12, floor=2))
    >>> step.request()
    array([2, 2])
    >>> step.observe(["a", "a", "b", "b"], [0, 0, 0, 1]); step.request()
    array([2, 0])
    """
    check_integer("group", group, 1)
    check_integer("stages", stages, 1)
    check_choice("quota", quota, ("balanced", "positive"))
    wins, fails = (max(1, group // 2), max(1, group // 2)) if quota == "balanced" else (1, 0)

    def finished(tally: Tally) -> NDArray[np.bool_]:
        return np.asarray(
            (tally.successes_P >= wins) & (tally.scored_P - tally.successes_P >= fails)
        )

    def decide(view: View) -> Rounds:
        trained = -(-view.rollouts_only("reinforce_ada") // stages)
        return until_finished(view, group, group, group * stages, finished, trained)

    needs = Needs(baseline="group", generate=stages, by_group=True)
    name = f"reinforce_ada(group={group}, stages={stages}, quota={quota!r}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, needs, keep=balanced)
