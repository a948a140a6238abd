"""prime-rl's difficulty pools: prompts drawn by a weight of their last mean success."""

import math

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_number
from budgetalloc.methods.rules import drawn_first, ranked
from budgetalloc.methods.table import Count, method, policy
from budgetalloc.policies import Policy, View

Pools = tuple[tuple[float, float], ...]


@method("which prompts", "released code", of_rates=True)
def prime_pools(
    *, group: Count = 8, pools: Pools = ((0.25, 0.2), (0.75, 1.0), (1.0, 0.2)), seed: int = 0
) -> Policy:
    """Draws prompts of middling difficulty more often than easy and hard ones, by the mean reward
    of their last visit. It is meant for datasets in which many prompts are too easy or too hard.

    Formula: drawn by 0.2, 1 or 0.2 where the last mean is at most 1/4, 3/4 or 1, by 1 if never
    seen.

    Source: prime-rl (PrimeIntellect-ai/prime-rl@114f3ca). Compared with the released code, whose
    `DifficultyPoolSampler` draws one task at a time, with replacement. Here prompts are drawn
    without replacement within a step.

    Graded success enters through its mean.

    Args:
        pools: (largest mean, weight) by ascending mean, the last mean 1; weights positive.

    >>> from budgetalloc import Budget
    >>> policy = prime_pools(pools=((0.25, 1e-9), (0.75, 1.0), (1.0, 1e-9)), seed=0)
    >>> policy.observe(["solved"] * 8 + ["half"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.allocate(["solved", "half", "new"], Budget(rollouts=16, floor=0))
    array([0, 8, 8])
    """
    try:
        tops, weights = np.array([(float(top), float(weight)) for top, weight in pools]).T
    except (TypeError, ValueError) as error:
        raise InputError("pools", "give (largest mean, weight) of each.", pools) from error
    if not (np.diff(tops) > 0).all() or tops[-1] != 1:
        raise InputError("pools", "the largest means ascend, and the last is 1.", pools)
    for weight in weights.tolist():
        check_number("weight of pools", weight, 0, math.inf, without=(0, math.inf))

    def learn(memory: Memory, seen: ByPrompt) -> None:
        memory.columns["last"][memory.rows(seen.ids_P)] = seen.mean_P

    def decide(view: View) -> IntArray:
        last_P = view.recall["last"]
        # includes its largest mean
        pool_P = np.minimum(np.searchsorted(tops, np.nan_to_num(last_P)), len(tops) - 1)
        weight_P = np.where(np.isnan(last_P), 1.0, weights[pool_P])
        return ranked(drawn_first(weight_P, view.rng), group, view)

    memory = Memory({"last": math.nan}, learn)
    return policy(decide, memory=memory, candidates="all")
