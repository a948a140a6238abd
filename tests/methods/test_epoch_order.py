"""Shuffled epochs."""

import numpy as np

from budgetalloc import BetaEstimator, Budget, Policy
from budgetalloc.beliefs.memory import Memory
from budgetalloc.methods.epoch_order import COLUMNS, count_visits, least_visited_first


def orders(seed, epochs=3, prompts=12, step=4):
    """The prompts of each epoch, in the order of their steps."""
    policy = Policy("epochs", least_visited_first(1), BetaEstimator(), seed, memory=Memory(COLUMNS, count_visits))
    met = []
    for _ in range(epochs * prompts // step):
        counts_P = policy.allocate(range(prompts), Budget(rollouts=step, floor=0, min_group=1))
        assert counts_P.max() == 1
        met.append(np.flatnonzero(counts_P).tolist())
        policy.observe(met[-1], [0] * step)
    return [met[k : k + prompts // step] for k in range(0, len(met), prompts // step)]


def test_every_epoch_holds_every_prompt_once_in_another_order():
    for epoch in orders(0):
        assert sorted(x for step in epoch for x in step) == list(range(12))
    assert orders(0)[0] != orders(0)[1]
    assert orders(0) == orders(0) != orders(1)


def test_a_surplus_fills_groups():
    policy = Policy("epochs", least_visited_first(1), BetaEstimator(), memory=Memory(COLUMNS, count_visits))
    assert sorted(policy.allocate(["a", "b"], Budget(rollouts=5, floor=0, min_group=1)).tolist()) == [2, 3]
