"""VIP: counts that minimise the variance of the gradient estimate."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.methods.rules import on_drawn_batch
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy
from budgetalloc.values import Value

Form = Literal["rloo", "dr_grpo"]

# Offsets that make value(0) = 0 and give opening a group a gain. They matter only if a budget in
# tokens or with quotas chooses prompts: a constant per group does not move rollouts between groups.
_START = {"rloo": 2.0, "dr_grpo": 0.5}


def gradient_variance(counts_N: ArrayLike, form: Form) -> FloatArray:
    """The variance of one prompt's gradient estimate from n >= 2 rollouts, in units of p(1-p) and
    of the squared norm.

    The score (the gradient of log pi) has mean zero and is assumed independent of the reward. The
    baseline is the mean of the others ("rloo"), or the group's mean without a scale ("dr_grpo"),
    which is convex from n = 3 only.

    >>> gradient_variance([2, 3, 4, 8], "dr_grpo").round(4)
    array([0.25  , 0.2222, 0.1875, 0.1094])
    """
    n = np.asarray(counts_N, dtype=np.float64)
    return np.asarray(1.0 / (n - 1.0) if form == "rloo" else (n - 1.0) / n**2)


def variance_reduction(form: Form) -> Value:
    """The value whose maximum minimises the sum of `gradient_variance` times E[p(1-p)]; 0 for n of
    0 and 1."""

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        counts = np.asarray(counts_N)
        gain_N = _START[form] - gradient_variance(np.maximum(counts, 2), form)
        # the memory order that solvers prefer
        return np.outer(np.where(counts >= 2, gain_N, 0.0), belief.moment(1, 1) * belief.spread_P).T

    return value


@method("across prompts", "released code")
def vip(
    *,
    form: Form = "rloo",
    group: Count = 8,
    prior: tuple[float, float] = (0.5, 0.5),
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Gives more rollouts to prompts whose success varies more. It is meant to give the batch's
    gradient the least variance for the same total.

    Formula: minimise the sum of p(1-p) / (n - 1), or of p(1-p) (n - 1) / n^2.

    Source: VIP (arXiv 2602.01601, Propositions 4.2 and 4.3). Compared with the released code
    (HieuNT91/VIP@0c17c79). It adds a bonus of n log(1/p) / 1400 for hard prompts, which the paper
    does not have and which is left out here. Its counts are at least 4. The belief replaces the
    paper's Gaussian process over prompt embeddings.

    With `floor=0` a batch of prompts is drawn first, as in `gvm`.

    Args:
        form: 1 / (n-1) ("rloo", Proposition 4.3) or (n-1) / n^2 ("dr_grpo", Proposition 4.2, exact
            from 3 rollouts a prompt). The step's advantages follow it.

    >>> from budgetalloc import Budget
    >>> policy, budget = vip(seed=0), Budget(rollouts=24)
    >>> policy.observe(["half"] * 8 + ["easy"] * 8, [0, 1] * 4 + [1] * 8)
    >>> policy.allocate(["half", "easy", "new"], budget)  # sqrt(0.225), sqrt(0.047), sqrt(0.125)
    array([11,  5,  8])
    """
    decide = on_drawn_batch(lambda view: variance_reduction(form), group)
    baseline = "loo" if form == "rloo" else "group"
    return policy(
        decide, prior=prior, discount=discount, idle=idle, baseline=baseline, scale="none"
    )
