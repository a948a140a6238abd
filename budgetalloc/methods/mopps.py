"""MoPPS: prompts whose Thompson draw is nearest to a target."""

from budgetalloc.budget import IntArray
from budgetalloc.methods.rules import ranked
from budgetalloc.methods.table import Count, Share, method, policy
from budgetalloc.policies import Policy, View


@method("which prompts", "released code", starves=True)
def mopps(*, group: Count = 8, target: Share = 0.5, discount: float = 0.5, seed: int = 0) -> Policy:
    """Chooses the prompts whose drawn success rate is nearest to a target. Beliefs from earlier
    visits say how hard a prompt is, so no rollouts are spent on measuring it.

    Formula: a group each to the smallest (p - target)^2, p a Thompson draw.

    Source: MoPPS (arXiv 2507.04632). Compared with the released code, which draws for a few times
    as many prompts as fit. lambda (`discount`) is 0.5 or 1.0 in its scripts.

    Beliefs do not fade between visits, so solved prompts return very rarely.

    >>> from budgetalloc import Budget
    >>> policy = mopps(seed=0)
    >>> policy.observe(["solved"] * 16 + ["half"] * 16, [1] * 16 + [0, 1] * 8)
    >>> policy.allocate(["solved", "half"], Budget(rollouts=8, floor=0))
    array([0, 8])
    """

    def decide(view: View) -> IntArray:
        drawn = view.belief_P.sample(view.rng)
        # Positive, and p (1-p) for a target of 1/2.
        nearness_P = max(target, 1 - target) ** 2 - (drawn.mean - target) ** 2
        return ranked(nearness_P * drawn.spread_P + 1e-12, group, view)

    return policy(decide, prior=(1.0, 1.0), discount=discount, candidates="all")
