"""prime-rl's difficulty pools: prompts drawn by a weight of their last mean success."""

import math

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number, shown
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import drawn_first, ranked

__all__ = ["Pools", "prime_pools"]

Pools = tuple[tuple[float, float], ...]


def prime_pools(
    *, group: int = 8, pools: Pools = ((0.25, 0.2), (0.75, 1.0), (1.0, 0.2)), seed: int = 0
) -> Policy:
    """Prompts drawn by a weight of their last mean success: prime-rl's `DifficultyPoolSampler`.

    A pool has a largest mean and a weight; a prompt never seen has weight 1. The defaults are
    prime-rl's: a weight of 0.2 up to 0.25 and above 0.75, and 1 between them. prime-rl draws one
    task at a time, with replacement, and knows the last group's mean by then. Here a step's prompts
    are drawn at its start, without replacement. Graded success enters through its mean alone.

    Args:
        group: Rollouts of a drawn prompt, at least 1.
        pools: (largest mean, weight) by ascending mean, the last mean 1; weights positive.
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> policy = prime_pools(pools=((0.25, 1e-9), (0.75, 1.0), (1.0, 1e-9)), seed=0)
    >>> policy.observe(["solved"] * 8 + ["half"] * 8 + ["failed"] * 8, [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(["solved", "half", "failed", "new"], Budget(rollouts=16, floor=0))
    array([0, 8, 0, 8])
    """
    check_integer("group", group, 1)
    try:
        tops, weights = map(
            np.array, zip(*((float(top), float(weight)) for top, weight in pools), strict=True)
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"pools={shown(pools)}: give (largest mean, weight) of each pool."
        ) from error
    if not (np.diff(tops) > 0).all() or tops[-1] != 1:
        raise InputError(f"pools={shown(pools)}: the largest means ascend, and the last is 1.")
    for weight in weights.tolist():
        check_number("weight of pools", weight, 0, math.inf, without=(0, math.inf))

    def learn(memory: Memory, visit: Visit) -> None:
        memory.columns["last"][visit.at_V] = visit.mean_V

    def rescale(memory: Memory, scale: float, shift: float) -> None:
        # NaN stays
        memory.columns["last"] = np.clip(scale * memory.columns["last"] + shift, 0.0, 1.0)

    def decide(view: View) -> IntArray:
        last_P = view.recall["last"]
        # includes its largest mean
        pool_P = np.minimum(np.searchsorted(tops, np.nan_to_num(last_P)), len(tops) - 1)
        return ranked(
            drawn_first(np.where(np.isnan(last_P), 1.0, weights[pool_P]), view.rng), group, view
        )

    memory, needs = (
        Memory({"last": math.nan}, learn, rescale=rescale),
        Needs(candidates="all", baseline="group"),
    )
    name = f"prime_pools(group={group}, pools={pools}, seed={seed})"
    return Policy(name, decide, BetaEstimator(), seed, needs, memory=memory)
