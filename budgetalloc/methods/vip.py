"""VIP: counts that minimise the variance of the gradient estimate."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.methods.rules import on_drawn_batch
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy
from budgetalloc.values import Value

Form = Literal["neyman", "dr_grpo", "rloo"]

# Offsets that make value(0) = 0 and give opening a group a gain. They matter only if a budget in
# tokens or with quotas chooses prompts: a constant per group does not move rollouts between groups.
_START = {"neyman": 1.0, "dr_grpo": 0.5, "rloo": 2.0}
_NEEDS = {
    "neyman": {},
    "dr_grpo": {"scale": "none"},
    "rloo": {"baseline": "loo", "scale": "none"},
}


def gradient_variance(counts_N: ArrayLike, form: Form) -> FloatArray:
    """The variance of one prompt's gradient estimate from n >= 2 rollouts, in units of p(1-p) and
    of the squared norm.

    The estimate is the mean over the group of advantage times score (the gradient of log pi). The
    score has mean zero and is assumed independent of the reward, so that the variance is E[A^2] /
    n. "neyman" has A = r - p with p known. "dr_grpo" has the group's mean as baseline and no scale;
    it is convex from n = 3 only. "rloo" has the mean of the others.

    >>> gradient_variance([2, 3, 4, 8], "dr_grpo").round(4)
    array([0.25  , 0.2222, 0.1875, 0.1094])
    """
    n = np.asarray(counts_N, dtype=np.float64)
    if form == "neyman":
        return np.asarray(1.0 / n)
    return np.asarray((n - 1.0) / n**2 if form == "dr_grpo" else 1.0 / (n - 1.0))


def variance_reduction(form: Form) -> Value:
    """The value whose maximum minimises the sum of `gradient_variance` times E[p(1-p)]; 0 for n of
    0 and 1. With "neyman" it is `budgetalloc.variance`."""

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        counts = np.asarray(counts_N)
        gain_N = _START[form] - gradient_variance(np.maximum(counts, 2), form)
        # the memory order that solvers prefer
        return np.outer(np.where(counts >= 2, gain_N, 0.0), belief.moment(1, 1) * belief.spread_P).T

    return value


@method("across prompts", "paper's formulas")
def vip(
    *,
    form: Form = "neyman",
    group: Count = 8,
    prior: tuple[float, float] = (0.5, 0.5),
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """VIP (arXiv 2602.01601): minimise the sum of E[p(1-p)] / n.

    The belief replaces the paper's Gaussian process over prompt embeddings. The forms dr_grpo and
    rloo are the paper's (propositions 4.2 and 4.3); the default, neyman, is ours. floor=0 draws a
    batch first, as in `gvm`.

    Args:
        form: sum of 1 / n ("neyman"), (n-1) / n^2 ("dr_grpo") or 1 / (n-1) ("rloo"). Counts are
            exact where it is convex ("dr_grpo": from 3), else on the concave hull.

    >>> from budgetalloc import Budget
    >>> policy, budget = vip(seed=0), Budget(rollouts=24)
    >>> policy.observe(["half"] * 8 + ["easy"] * 8, [0, 1] * 4 + [1] * 8)
    >>> policy.allocate(["half", "easy", "new"], budget)  # sqrt(0.225), sqrt(0.047), sqrt(0.125)
    array([11,  5,  8])
    """
    decide = on_drawn_batch(lambda view: variance_reduction(form), group)
    return policy(decide, prior=prior, discount=discount, idle=idle, **_NEEDS[form])
