"""AR3PO: rounds until a prompt's first success."""

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.errors import check_integer
from budgetalloc.policies.interface import Needs, Rounds, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.rounds import until_finished

__all__ = ["ar3po"]


def ar3po(*, group: int = 8, stages: int = 2, seed: int = 0) -> Policy:
    """Stops a prompt at its first success: AR3PO's adaptive rollout (arXiv 2509.25808).

    Each stage gives `group / stages` rollouts to every prompt without a success. The rollouts saved
    start further prompts, so that the budget is spent exactly. Groups that always pass stay without
    signal. The group's mean is biased upwards (for two stages of k, by (1-p)^k p / 2). Any graded
    success above 0 counts as a success.

    The paper's number of stages was not found, only that group = 8; two is our default. Its reuse
    of responses is not included.

    Args:
        group: Most rollouts of a prompt, at least 1.
        stages: Rounds to reach it, 1 to `group`.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> step = ar3po(seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a", "a", "a", "a", "b", "b", "b", "b"], [0, 1, 0, 0, 0, 0, 0, 0])
    >>> step.request()  # b continues; what a does not need will start c
    array([0, 4, 0, 0])
    """
    check_integer("group", group, 1)
    check_integer("stages", stages, 1, group)
    each = -(-group // stages)

    def decide(view: View) -> Rounds:
        return until_finished(
            view,
            each,
            each,
            group,
            lambda tally: tally.successes_P > 0,
            view.rollouts_only("ar3po"),
        )

    needs = Needs(candidates=stages, baseline="group", by_group=True)
    return Policy(
        f"ar3po(group={group}, stages={stages}, seed={seed})", decide, BetaEstimator(), seed, needs
    )
