"""The recommended policy: rollouts drawn in proportion to a weight, so that no prompt is starved."""

from dataclasses import replace
from typing import Literal

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.posterior import Belief
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_flag, check_integer, shown
from budgetalloc.policies.base import Policy
from budgetalloc.policies.compose import spend
from budgetalloc.policies.decision import Needs, View
from budgetalloc.policies.ranking import top
from budgetalloc.solvers.systematic import systematic


def sampled(
    *,
    power: tuple[int, int] = (1, 2),
    draw: bool = True,
    prior: tuple[float, float] | Literal["pool"] = (0.3, 0.3),
    discount: float = 1.0,
    idle: float = 0.98,
    drift: bool = False,
    seed: int = 0,
) -> Policy:
    """Draws counts by systematic sampling, in proportion to sqrt(p^i (1-p)^j) at each prompt's drawn rate p.

    The square root is Neyman's rule: if one rollout of a prompt has variance v, counts proportional to sqrt(v) minimise
    the total variance of the estimate. With power=(1, 1) v is the variance of the reward; with (1, 2), the default, it
    is weighted by 1 - p, as in Knapsack RL (arXiv 2509.25849) and VADE (2511.18902): mastered prompts get few rollouts,
    prompts with rare successes many. The Thompson draw explores prompts with little evidence.

    The posterior baseline allows groups of one, so that a step can cover as many prompts as it has rollouts. Evidence
    fades at every step rather than at a visit, because a visit may be a single rollout. The belief about a prompt
    without visits returns to the prior, so that the prompt is drawn again and forgetting is noticed.

    Args:
        power: i and j, integers from 0 to 16.
        draw: Draw p from the belief; otherwise E[p^i (1-p)^j] under the belief is used.
        prior, discount, idle, drift: As in `BetaEstimator`.
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> policy = sampled(seed=0)
    >>> policy.observe(["mastered"] * 16 + ["half"] * 16, [1] * 16 + [0, 1] * 8)
    >>> policy.allocate(["mastered", "half", "new"], Budget(rollouts=16, floor=0, min_group=1))
    array([ 0, 11,  5])
    """
    try:
        i, j = (check_integer("power", x, 0, 16) for x in power)
    except (TypeError, ValueError) as error:  # InputError is a ValueError
        raise InputError(f"power={shown(power)}: use two integers from 0 to 16, such as (1, 2).") from error
    check_flag("draw", draw)

    def decide(view: View) -> IntArray:
        belief: Belief = view.belief_P.sample(view.rng) if draw else view.belief_P
        variance_P = belief.moment(i, j) * (belief.spread_P if i and j else 1.0)
        weights_P = np.sqrt(variance_P) + 1e-9  # prompts believed certain come last, but are possible
        if view.budget.rollouts is None or view.budget.tokens is not None or view.budget.quotas is not None:
            return spend(belief, top(weights_P, view.budget.smallest_group), view, None)
        return systematic(weights_P, view.budget, view.rng)

    estimator = BetaEstimator(prior=prior, discount=discount, idle=idle, drift=drift)
    needs = Needs(candidates="all", baseline="posterior", scale="batch", min_group=1)
    settings = f"power={power}, draw={draw}, prior={prior!r}, discount={discount}, idle={idle}, drift={drift}"
    return Policy(f"sampled({settings}, seed={seed})", decide, estimator, seed, needs)


def adaptive(*, seed: int = 0) -> Policy:
    """The recommended policy: groups of one over the whole dataset, drawn by `sampled`, with the posterior baseline.

    The learning benchmark (`benchmarks/learning`) picked it. It asks a trainer for `candidates="all"`,
    `baseline="posterior"`, `scale="batch"` and `min_group=1`.

    The seed is the only argument: all other settings are those that the benchmark measured. `sampled` has them as
    arguments.

    >>> adaptive()
    adaptive(seed=0)
    """
    return replace(sampled(seed=seed), name=f"adaptive(seed={seed})")
