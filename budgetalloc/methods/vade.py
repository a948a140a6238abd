"""VADE: prompts by a Thompson draw of p (1-p)^2."""

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import spend_on_top

__all__ = ["vade"]


def vade(*, group: int = 8, discount: float = 0.2, idle: float = 0.999, seed: int = 0) -> Policy:
    """The prompts whose Thompson draw has the largest p (1-p)^2, a group of equal size each (arXiv
    2511.18902).

    A visited prompt keeps the share `discount` of its evidence, the others the share `idle`
    (two-scale decay). The prior is Beta(1, 1). The paper's figures suggest 0.2, 0.999 and groups of
    8; its text does not print them.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        discount, idle: As in `BetaEstimator`.
        seed: Seeds the draws and the ties.

    >>> from budgetalloc import Budget
    >>> vade(seed=0).allocate(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    array([0, 0, 8, 8])
    """
    check_integer("group", group, 1)

    def decide(view: View) -> IntArray:
        drawn = view.belief_P.sample(view.rng)
        return spend_on_top(drawn.moment(1, 2) * drawn.spread_P + 1e-12, group, view)

    name = f"vade(group={group}, discount={discount}, idle={idle}, seed={seed})"
    estimator = BetaEstimator(prior=(1.0, 1.0), discount=discount, idle=idle)
    return Policy(name, decide, estimator, seed, Needs(candidates="all", baseline="group"))
