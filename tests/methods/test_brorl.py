"""BroRL: breadth against depth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.brorl import breadth_depth, brorl, lr_scale

IDS = list(range(40))


def test_breadth_and_depth_are_traded_at_equal_rollouts():
    assert breadth_depth(8192, 16) == 512
    assert breadth_depth(8192, 512) == 16
    assert breadth_depth(8191, 512) == 15
    assert breadth_depth(100, 512) == 1


def test_the_learning_rate_grows_by_the_root_of_the_batch():
    assert lr_scale(4, 1) == 2.0
    assert lr_scale(128 * 512, 512 * 16) == pytest.approx(8**0.5)  # exact: 8 times the rollouts
    assert lr_scale(16, 64) == 0.5


@given(rollouts=st.integers(2, 300), group=st.integers(2, 64), seed=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_brorl_takes_as_many_prompts_as_breadth_depth_says(rollouts, group, seed):
    counts = brorl(group=group, seed=seed).allocate(IDS, Budget(rollouts, floor=0))
    assert counts.sum() == rollouts
    assert (counts > 0).sum() == min(breadth_depth(rollouts, group), len(IDS))
    taken = counts[counts > 0]
    assert taken.min() >= min(group, rollouts)
    assert np.ptp(taken) <= 1  # what does not divide is spread evenly


def test_brorl_draws_every_prompt_equally_often_whatever_its_rate():
    policy, met = brorl(group=16, seed=1), np.zeros(len(IDS))
    for _ in range(600):
        counts = policy.allocate(IDS, Budget(64, floor=0))
        met += counts > 0
        policy.observe(np.repeat(IDS, counts), np.repeat([float(k > 20) for k in IDS], counts))
    expected = 600 * 4 / 40
    assert np.abs(met - expected).max() < 5 * (expected * 0.9) ** 0.5  # binomial


def test_brorl_does_not_wait_for_prompts_whose_rewards_are_missing():
    policy, met = brorl(group=32), np.zeros(len(IDS))
    for _ in range(300):
        counts = policy.allocate(IDS, Budget(32, floor=0))
        met += counts > 0
        policy.observe(np.repeat(IDS, counts), np.repeat([np.nan if k < 30 else 1.0 for k in IDS], counts))
    assert met.min() > 0


def test_brorl_gives_the_floor_to_all_and_the_group_to_few():
    counts = brorl(group=16).allocate(IDS, Budget(40 * 2 + 14 * 3, floor=2))
    assert sorted(counts.tolist()) == [2] * 37 + [16] * 3


def test_brorl_takes_more_prompts_where_the_cap_is_below_the_group():
    counts = brorl(group=512).allocate(IDS, Budget(64, floor=0, cap=8))
    assert sorted(counts.tolist()) == [0] * 32 + [8] * 8
