"""A*-PO's fixed value against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods import a_star_po

ONE = Budget(rollouts=1, floor=0, min_group=1)


@given(rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=12), beta=st.floats(0.05, 20))
def test_the_baseline_is_the_soft_mean_of_the_rewards_before_training_and_fixed(rewards, beta):
    """V* = beta log mean_i exp(r_i / beta), as `ZhaolinGao/A-PO` computes it."""
    expected = beta * np.log(np.mean(np.exp(np.array(rewards) / beta)))
    policy = a_star_po(beta=beta, offline={"a": (sum(rewards), len(rewards))})
    for reward in (1, 0, 1):
        step = policy.begin(["a", "new"], ONE)
        assert step.expected_success(["a", "new"], [reward, 0]) == pytest.approx([expected, 0.5], abs=1e-9)
        policy.observe(["a"], [reward])


def test_what_was_measured_is_not_trained_on_and_stays():
    policy = a_star_po(offline=4)
    step = policy.begin(["a"], Budget(rollouts=4, floor=0, min_group=1))
    assert step.request().tolist() == [4]
    step.observe(["a"] * 4, [1, 0, 0, 0])
    assert np.isnan(step.expected_success(["a"] * 4, [1, 0, 0, 0])).all()
    step.end()
    for _ in range(3):
        value = policy.begin(["a"], ONE).expected_success(["a"], [1])
        assert value == pytest.approx(0.5 * np.log(3 / 4 + np.exp(2) / 4))
        policy.observe(["a"], [1])
