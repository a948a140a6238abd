"""AdaRFT: the target by hand, and the prompts nearest to it."""

import math

import numpy as np
import pytest

from budgetalloc import Budget, simulate
from budgetalloc.methods import adarft
from budgetalloc.testing import Known

OFFLINE = {f"p{k}": (k, 8) for k in range(9)}  # difficulties 100, 87.5, ..., 0


def chosen(policy):
    counts_P = policy.allocate(list(OFFLINE), Budget(rollouts=16, floor=0))
    return {x for x, n in zip(OFFLINE, counts_P, strict=True) if n}


def test_the_target_moves_with_the_mean_reward_and_the_nearest_are_taken():
    policy = adarft(offline=OFFLINE)
    target = 0.0
    assert chosen(policy) == {"p8", "p7"}  # 0 and 12.5
    for mean in (1.0, 0.75, 0.25, 0.0, 1.0):
        ids = sorted(chosen(policy))
        policy.observe([x for x in ids for _ in range(8)], [1] * int(16 * mean) + [0] * int(16 - 16 * mean))
        target = min(max(target + 50 * math.tanh(2 * (mean - 0.5)), 0), 100)
        assert policy.memory.numbers["target"] == pytest.approx(target)
        distance = {x: abs(100 * (1 - s / 8) - target) for x, (s, _) in OFFLINE.items()}
        assert chosen(policy) == set(sorted(distance, key=distance.get)[:2])


def test_measuring_comes_first_and_does_not_move_the_target():
    policy, seen = adarft(), []

    class World(Known):
        def learn(self, advantages_R):
            seen.append(bool(np.any(advantages_R)))
            super().learn(advantages_R)

    list(simulate(policy, World(np.linspace(0, 1, 8)), 32, 2, prompts=4))
    assert policy.memory.numbers["target"] == 0.0
    assert seen == [False, False]
    list(simulate(policy, World(np.full(8, 0.9)), 32, 1, prompts=4))
    assert policy.memory.numbers["target"] > 0
