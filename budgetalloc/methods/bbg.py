"""BBG: prompts whose success still adds to pass@k."""

from typing import Annotated

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.methods.rules import by_chance
from budgetalloc.methods.table import Between, Count, Share, method, policy
from budgetalloc.policies import Policy, View


@method("which prompts", "a description", of_rates=True)
def bbg(
    *,
    k: Annotated[int, Between(2, 10_000)] = 16,
    least: Share = 0.01,
    group: Count = 8,
    explore: Share = 0.05,
    seed: int = 0,
) -> Policy:
    """Chooses random prompts among those where further success still raises pass@k, which are the
    prompts with few successes. It is meant for trainings judged by pass@k instead of the mean
    success.

    Formula: a group each to random prompts with u = E[k (1-p)^(k-1)] >= tau (n + 1), p after m of n
    successes ~ Beta(1 + m, 1 + n - m).

    Source: BBG (arXiv 2606.15455, equations 8 and 9). Compared with a description only: a
    re-implementation by others. The paper's method was not read. There the gate stops the update of
    a group. Here it chooses prompts by their last visit, and others pass with the probability
    `explore`, our addition. The paper's loss for prompts that never succeed, which have no gradient
    under a group's baseline, is left out.

    u is the gain of pass@k in p.

    Args:
        k: Of pass@k; larger is stricter. With the defaults at most 3 successes of 8 pass, with
            k=256 at most 1.
        least: tau.

    >>> from budgetalloc import Budget
    >>> policy = bbg(explore=0, seed=0)
    >>> policy.observe(["half"] * 8 + ["hard"] * 8, [0, 1] * 4 + [1] * 3 + [0] * 5)
    >>> policy.allocate(["half", "hard", "new"], Budget(rollouts=16, floor=0))  # 0.05, 0.19, 1
    array([0, 8, 8])
    """

    def chance(view: View) -> FloatArray:
        gain_P = k * view.belief_P.all_fail([k - 1])[:, 0]
        return np.where(gain_P >= least * (group + 1), 1.0, explore)

    return policy(by_chance(chance, group), prior=(1.0, 1.0), discount=0.0, candidates="all")
