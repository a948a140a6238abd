"""The batches that methods draw where there is no floor."""

import numpy as np
import pytest
from policy_steps import seen

from budgetalloc import Budget
from budgetalloc.methods.gvm import gvm
from budgetalloc.methods.vip import vip


@pytest.mark.parametrize("make", [vip, gvm])
def test_without_a_floor_a_batch_is_drawn_and_every_prompt_has_its_turn(make):
    policy, met = seen(make(group=8), [0.5, 0.0, 1.0] + [0.5] * 10), np.zeros(40)
    for _ in range(60):
        counts_P = policy.allocate(range(40), Budget(64, floor=0))
        assert (counts_P > 0).sum() == 8
        met += counts_P > 0
        policy.observe([], [])
    assert met.min() >= 3  # 12 on average


@pytest.mark.parametrize("make", [vip, gvm])
def test_a_drawn_prompt_has_at_least_the_smallest_group(make):
    policy = make(prior=(1e-4, 1e-4), discount=1.0)
    policy.observe(["half"] * 8 + ["solved"] * 8 + ["hopeless"] * 8, [0, 1] * 4 + [1] * 8 + [0] * 8)
    counts_P = policy.allocate(["half", "solved", "hopeless"], Budget(24, floor=0, min_group=4))
    assert counts_P.min() == 4
