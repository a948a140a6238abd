"""A*-PO's fixed value against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.a_star_po import a_star_po, optimal_value


@given(rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=12), beta=st.floats(0.05, 20))
def test_the_value_is_the_soft_mean_of_its_rewards(rewards, beta):
    """V* = beta log mean_i exp(r_i / beta), as `ZhaolinGao/A-PO` computes it."""
    expected = beta * np.log(np.mean(np.exp(np.array(rewards) / beta)))
    got = optimal_value([sum(rewards)], [len(rewards)], beta)[0]
    assert got == pytest.approx(expected, abs=1e-9)
    assert np.mean(rewards) - 1e-9 <= got <= max(rewards) + 1e-9


def test_the_baseline_is_fixed():
    policy = a_star_po(offline={"a": (2, 8), "b": (8, 8)})
    expected = optimal_value([2, 8, 0], [8, 8, 0])
    for _ in range(4):
        step = policy.begin(["a", "b", "new"], Budget(rollouts=3, floor=0, min_group=1))
        assert step.request().tolist() == [1, 1, 1]
        assert step.expected_success(["a", "b", "new"], [1, 0, 1]) == pytest.approx(expected)
        step.observe(["a", "b", "new"], [1, 0, 1])
        step.end()


def test_what_was_measured_stays_too():
    policy = a_star_po(offline=4)
    step = policy.begin(["a"], Budget(rollouts=4, floor=0, min_group=1))
    assert step.request().tolist() == [4]
    step.observe(["a"] * 4, [1, 0, 0, 0])
    assert np.isnan(step.expected_success(["a"] * 4, [1, 0, 0, 0])).all()
    step.end()
    for _ in range(3):
        step = policy.begin(["a"], Budget(rollouts=1, floor=0, min_group=1))
        assert step.expected_success(["a"], [1]) == pytest.approx(optimal_value([1], [4]))
        policy.observe(["a"], [1])
