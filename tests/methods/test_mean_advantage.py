"""The mean absolute advantage of a group."""

import itertools
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc import group_advantages
from budgetalloc.methods.mean_advantage import mean_advantage


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("values", [(0.0, 1.0), (0.2, 1.0), (-3.0, 2.5), (0.0, 0.5, 1.0)], ids=str)
def test_the_mean_advantage_is_that_of_the_group(n, values):
    """Enumerated: the advantages of each possible group, divided by its deviation."""
    for rewards in itertools.product(values, repeat=n):
        advantages, spread = group_advantages(rewards, ["x"] * n, scale="none"), np.std(rewards)
        expected = np.abs(advantages).mean() / spread if len(set(rewards)) > 1 else 0.0
        group_R = np.zeros(n, dtype=np.int64)
        assert mean_advantage(rewards, group_R, 1) == pytest.approx([expected], rel=1e-12)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8)), min_size=1, max_size=9))
def test_of_rewards_of_0_and_1_only_the_mean_counts_to_the_bit(groups):
    """As it was computed when only the mean of each group was kept."""
    counts = [(min(passed, n), n) for passed, n in groups]
    rewards_R = np.concatenate([np.arange(n) < passed for passed, n in counts]).astype(float)
    group_R = np.repeat(np.arange(len(counts)), [n for _, n in counts])
    expected = [2.0 * sqrt(max(passed / n * (1 - passed / n), 0.0)) for passed, n in counts]
    assert mean_advantage(rewards_R, group_R, len(counts)).tolist() == expected


def test_groups_of_equal_rewards_and_empty_groups_hold_no_signal():
    assert mean_advantage([0.1] * 3 + [7.0], np.array([0, 0, 0, 2]), 3).tolist() == [0, 0, 0]
