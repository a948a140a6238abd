"""AR3PO: rounds until a prompt's first success."""

from typing import Annotated

from budgetalloc.methods.table import Between, Count, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.rounds import until_finished


@method("in rounds", "a description", of_rates=True)
def ar3po(
    *, group: Count = 8, stages: Annotated[int, Between(1, "group")] = 2, seed: int = 0
) -> Policy:
    """Continues each prompt in rounds until its first success. Rollouts that easy prompts do not
    need go to further prompts.

    Formula: k rollouts a round until the first success, S rounds at most, S k = 8.

    Source: AR3PO (arXiv 2509.25808). Compared with a description only. S is our default. Responses
    are not reused.

    The group mean is biased, in two rounds by (1-p)^k p / 2: use a baseline from before the step.
    Any graded success above 0 counts.

    >>> from budgetalloc import Budget
    >>> step = ar3po(seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    >>> step.request()
    array([4, 4, 0, 0])
    >>> step.observe(["a"] * 4 + ["b"] * 4, [0, 1, 0, 0, 0, 0, 0, 0])
    >>> step.request()  # b continues; what a does not need will start c
    array([0, 4, 0, 0])
    """
    each = -(-group // stages)

    def decide(view: View) -> Rounds:
        every = view.rollouts_only("ar3po")
        return until_finished(view, each, each, group, lambda seen: seen.successes_P > 0, every)

    return policy(decide, candidates=stages, by_group=True)
