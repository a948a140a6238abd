"""prime-rl's pools: the weights of its sampler, as frequencies of first draws."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from budgetalloc import Budget
from budgetalloc.methods.prime_pools import prime_pools

MEANS = {"never": 0.0, "quarter": 0.25, "more": 0.375, "three": 0.75, "nearly": 0.875, "always": 1.0}
WEIGHTS = {"never": 0.2, "quarter": 0.2, "more": 1.0, "three": 1.0, "nearly": 0.2, "always": 0.2, "new": 1.0}


@pytest.mark.slow
def test_prompts_are_drawn_by_the_pool_of_their_last_mean():
    policy, drawn, n = prime_pools(), Counter(), 1000
    policy.observe(["always"] * 8, [0] * 8)  # what came before the last visit does not count
    for x, mean in MEANS.items():
        policy.observe([x] * 8, [1] * int(8 * mean) + [0] * int(8 - 8 * mean))
    for seed in range(n):
        counts_P = replace(policy, seed=seed).allocate(list(WEIGHTS), Budget(rollouts=8, floor=0))
        assert counts_P.max() == 8
        drawn[list(WEIGHTS)[int(np.argmax(counts_P))]] += 1
    total = sum(WEIGHTS.values())
    for x, weight in WEIGHTS.items():
        p = weight / total
        assert drawn[x] / n == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / n))


def test_pools_of_ones_own():
    policy = prime_pools(pools=((0.5, 1e-12), (1.0, 1.0)))
    policy.observe(["low"] * 2 + ["high"] * 2, [0, 1, 1, 1])
    assert policy.allocate(["low", "high"], Budget(rollouts=8, floor=0)).tolist() == [0, 8]
