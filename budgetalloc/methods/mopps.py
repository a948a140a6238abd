"""MoPPS: prompts whose Thompson draw is nearest to a target."""

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer, check_number
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import ranked

__all__ = ["mopps"]


def mopps(*, group: int = 8, target: float = 0.5, discount: float = 0.5, seed: int = 0) -> Policy:
    """The prompts whose Thompson draw is nearest to `target`, a group of equal size each (MoPPS,
    arXiv 2507.04632).

    The smallest (draw - target)^2 are taken. At a visit, alpha becomes lambda alpha + (1 - lambda)
    alpha_0 + successes, and beta likewise, from Beta(1, 1); lambda is `discount`. BOTS (arXiv
    2510.26374) with rho = 0 has the same update, with 1 - lambda for lambda. Beliefs do not fade
    between visits, so that in a large pool a prompt that was just solved may rarely be chosen
    again. For a target of 1/2 the nearest draw has the largest p(1-p). For graded success, which
    the paper does not treat, nearness is multiplied by the belief's spread.

    The paper's lambda was not found; 0.5 is our default. The released code draws for a few times as
    many prompts as fit, not for the pool. With one rollout a prompt, it sets alpha and beta to 8 at
    each visit.

    Args:
        group: Rollouts of a chosen prompt, at least 1.
        target: Preferred success rate, in [0, 1].
        discount: lambda, in [0, 1].
        seed: Seeds the draws and the ties.

    >>> from budgetalloc import Budget
    >>> policy = mopps(seed=0)
    >>> policy.observe(["solved"] * 16 + ["half"] * 16, [1] * 16 + [0, 1] * 8)
    >>> policy.allocate(["solved", "half"], Budget(rollouts=8, floor=0))
    array([0, 8])
    """
    check_integer("group", group, 1)
    check_number("target", target, 0, 1)
    check_number("discount", discount, 0, 1)
    farthest = max(target, 1 - target)

    def decide(view: View) -> IntArray:
        drawn = view.belief_P.sample(view.rng)
        # Positive, and p (1-p) for a target of 1/2.
        nearness_P = farthest**2 - (drawn.mean - target) ** 2
        return ranked(nearness_P * drawn.spread_P + 1e-12, group, view)

    name = f"mopps(group={group}, target={target}, discount={discount}, seed={seed})"
    estimator = BetaEstimator(prior=(1.0, 1.0), discount=discount)
    return Policy(name, decide, estimator, seed, Needs(candidates="all", baseline="group"))
