"""DART, BroRL and DRIVE: counts that are wanted, and batches that fit."""

from functools import partial

import numpy as np
import policy_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_steps import observe

from budgetalloc import Budget
from budgetalloc.methods import brorl, dart, drive


def test_dart_reduces_prompts_that_pass_more_than_60_percent():
    policy = dart()
    observe(policy, {"sixty": 0.6, "more": 0.75, "never": 0.0}, group=40)
    assert policy.allocate(["sixty", "more", "never", "cold"], Budget(28)).tolist() == [8, 4, 8, 8]


def test_dart_gives_what_it_saves_to_further_prompts():
    policy, ids = dart(), list(range(100))
    assert (policy.allocate(ids, Budget(160, floor=0)) > 0).sum() == 20
    observe(policy, dict.fromkeys(ids, 1.0))
    counts = policy.allocate(ids, Budget(160, floor=0))
    assert (counts > 0).sum() == 40
    assert counts.max() == 4


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


RATES = {k: k / 39 for k in IDS}  # 0 is the hardest
observe_all = partial(policy_steps.observe, group=78)


def test_drive_defaults_are_the_papers_shares_of_175_prompts():
    policy, ids = drive(), list(range(175))
    kept = {}
    for step in range(32 + 64 + 32 + 40):
        counts = policy.allocate(ids, Budget(175 * 64, floor=0))
        kept.setdefault(int((counts > 0).sum()), []).append(step)
        observe_all(policy, {k: k / 174 for k in ids}, group=3)
    spans = {number: (steps[0], len(steps)) for number, steps in kept.items()}
    assert spans == {175: (0, 32), 72: (32, 64), 50: (96, 32), 25: (128, 40)}


def test_drive_draws_among_the_kept_where_the_step_has_no_room_for_all():
    policy, met = drive(phases=[(0.25, 1, 16)], seed=2), np.zeros(len(IDS))
    observe_all(policy, RATES)
    for _ in range(60):
        counts = policy.allocate(IDS, Budget(32, floor=0))
        met += counts > 0
        policy.observe(["another"], [1.0])
    assert met[:10].min() > 0
    assert met[10:].max() == 0


def test_drive_spends_the_rest_on_the_kept_prompts_too():
    policy = drive(phases=[(0.1, 1, 8)])
    observe_all(policy, RATES)
    assert policy.allocate(IDS, Budget(64, floor=0)).tolist() == [16] * 4 + [0] * 36
    assert policy.allocate(IDS, Budget(144, floor=2)).tolist() == [18] * 4 + [2] * 36
    counts = policy.allocate(IDS, Budget(64, floor=0, cap=8))  # the cap needs four more: the next hardest
    assert counts.tolist() == [8] * 8 + [0] * 32
