"""VADE: prompts by a Thompson draw of p (1-p)^2."""

from budgetalloc.budget import IntArray
from budgetalloc.methods.rules import spend_on_top
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy, View


@method("which prompts", "a description")
def vade(*, group: Count = 8, discount: float = 0.2, idle: float = 0.999, seed: int = 0) -> Policy:
    """Chooses the prompts with the largest expected gain, which is highest for those solved one
    time in three. Draws from the beliefs also try prompts with little history, and no rollouts are
    spent on testing prompts.

    Formula: a group each to the largest p (1-p)^2, p a Thompson draw.

    Source: VADE (arXiv 2511.18902). Compared with a description only: the paper's figure, which
    suggests 0.2, 0.999 and groups of 8. The full text was not read.

    >>> from budgetalloc import Budget
    >>> vade(seed=0).allocate(["a", "b", "c", "d"], Budget(rollouts=16, floor=0))
    array([0, 0, 8, 8])
    """

    def decide(view: View) -> IntArray:
        drawn = view.belief_P.sample(view.rng)
        return spend_on_top(drawn.moment(1, 2) * drawn.spread_P + 1e-12, group, view)

    return policy(decide, prior=(1.0, 1.0), discount=discount, idle=idle, candidates="all")
