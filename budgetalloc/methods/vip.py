"""VIP: counts that minimise the variance of the gradient estimate."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_array, check_choice, check_integer
from budgetalloc.methods.prompt_selection import drawn_batch
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.values import Value

__all__ = ["Form", "gradient_variance", "variance_reduction", "vip"]

Form = Literal["neyman", "dr_grpo", "rloo"]

# Offsets that make value(0) = 0 and give opening a group a gain. They matter only if a budget in
# tokens or with quotas chooses prompts: a constant per group does not move rollouts between groups.
_START = {"neyman": 1.0, "dr_grpo": 0.5, "rloo": 2.0}


def gradient_variance(counts_N: ArrayLike, form: Form = "neyman") -> FloatArray:
    """The variance of one prompt's gradient estimate from n rollouts, in units of p(1-p) and of the
    squared norm.

    The estimate is the mean over the group of advantage times score (the gradient of log pi). The
    score has mean zero and is assumed independent of the reward, so that the variance is E[A^2] /
    n. "neyman" has A = r - p with p known: 1 / n. "dr_grpo" has the group's mean as baseline and no
    scale: (n-1) / n^2. "rloo" has the mean of the others: 1 / (n-1). "neyman" is convex in n,
    "rloo" from n = 2. "dr_grpo" is convex from n = 3 only; it rises from n = 1, where there is no
    gradient, to n = 2.

    Returns:
        Shape (N,); infinite for "rloo" at n = 1, where there are no others.

    >>> gradient_variance([2, 3, 4, 8], "dr_grpo").round(4)
    array([0.25  , 0.2222, 0.1875, 0.1094])
    >>> gradient_variance([2, 3, 5], "rloo")
    array([1.  , 0.5 , 0.25])
    """
    check_choice("form", form, get_args(Form))
    n = check_array("counts_N", counts_N, "counts of rollouts")
    if form == "neyman":
        return 1.0 / n
    if form == "dr_grpo":
        return (n - 1.0) / n**2
    with np.errstate(divide="ignore"):
        return 1.0 / (n - 1.0)


def variance_reduction(form: Form = "neyman") -> Value:
    """The value whose maximum minimises the sum of `gradient_variance` times E[p(1-p)]; 0 for n of
    0 and 1.

    With "neyman" it is `budgetalloc.variance`.

    >>> from budgetalloc import Point
    >>> variance_reduction("rloo")(Point([0.5]), [0, 1, 2, 3, 5])
    array([[0.    , 0.    , 0.25  , 0.375 , 0.4375]])
    """
    check_choice("form", form, get_args(Form))

    def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        counts = np.asarray(counts_N)
        gain_N = np.where(
            counts >= 2, _START[form] - gradient_variance(np.maximum(counts, 2), form), 0.0
        )
        # the memory order that solvers prefer
        return np.outer(gain_N, belief.moment(1, 1) * belief.spread_P).T

    return value


def vip(
    *,
    form: Form = "neyman",
    group: int = 8,
    prior: tuple[float, float] = (0.5, 0.5),
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Counts that minimise the total variance of the gradient, sum of E[p(1-p)] / n (VIP, arXiv
    2602.01601).

    The paper predicts p with a Gaussian process over prompt embeddings. Here the belief replaces
    it, so that similar prompts share nothing. The forms "dr_grpo" and "rloo" are derived by us
    (`gradient_variance`). Integer counts are solved for exactly where the form is convex over the
    counts allowed ("dr_grpo": groups of 3 or more), and otherwise on the concave hull. The authors'
    repository held no code.

    Every prompt gets at least the smallest group. With `floor=0` the paper's batch is drawn first:
    prompts at random, as many as groups of `group` fit into the budget. A budget in tokens or with
    quotas instead chooses among all.

    Args:
        form: "neyman", "dr_grpo" or "rloo".
        group: Mean rollouts of a drawn prompt, at least 1; our default.
        prior, discount, idle: As in `BetaEstimator`; our default.
        seed: Seeds the drawn batch and the ties.

    >>> from budgetalloc import Budget
    >>> policy = vip(seed=0)
    >>> policy.observe(["half"] * 8 + ["easy"] * 8, [0, 1] * 4 + [1] * 8)
    >>> policy.allocate(["half", "easy", "new"], Budget(rollouts=24))  # as sqrt(0.225), sqrt(0.047), sqrt(0.125)
    array([11,  5,  8])
    """
    check_choice("form", form, get_args(Form))
    check_integer("group", group, 1)
    value = variance_reduction(form)

    def decide(view: View) -> IntArray:
        batch = drawn_batch(view, group)
        counts_P = np.zeros(len(view.belief_P), dtype=np.int64)
        counts_P[: len(batch.belief_P)] = spend(batch.belief_P, value, batch, None)
        return counts_P

    estimator = BetaEstimator(prior=prior, discount=discount, idle=idle)
    settings = (
        f"form={form!r}, group={group}, prior={estimator.prior!r}, discount={discount}, idle={idle}"
    )
    needs = {
        "neyman": Needs(baseline="group"),
        "dr_grpo": Needs(baseline="group", scale="none"),
        "rloo": Needs(baseline="loo", scale="none"),
    }
    return Policy(f"vip({settings}, seed={seed})", decide, estimator, seed, needs[form])
