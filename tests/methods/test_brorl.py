"""BroRL: breadth against depth."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.brorl import brorl

IDS = list(range(40))


@given(rollouts=st.integers(2, 300), group=st.integers(2, 64), seed=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_brorl_takes_as_many_prompts_as_groups_fit(rollouts, group, seed):
    counts = brorl(group=group, seed=seed).allocate(IDS, Budget(rollouts, floor=0))
    assert counts.sum() == rollouts
    assert (counts > 0).sum() == min(max(1, rollouts // group), len(IDS))
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


def test_brorl_takes_more_prompts_where_the_cap_is_below_the_group():
    counts = brorl(group=512).allocate(IDS, Budget(64, floor=0, cap=8))
    assert sorted(counts.tolist()) == [0] * 32 + [8] * 8
