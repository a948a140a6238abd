"""AERO: which rows are trained on against a plain loop, the rescue, and the signal of groups of equal rewards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_step import advantages_of_step

from budgetalloc import Budget
from budgetalloc.methods.aero import aero, kept_rows

ROLLOUTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 1.0, np.nan])), min_size=1, max_size=40)


def by_hand(groups, success):
    """The strategies of AERO, prompt by prompt."""
    kept = set()
    for g in set(groups):
        rows = [i for i, x in enumerate(groups) if x == g and success[i] == success[i]]
        right, wrong = ([i for i in rows if success[i] == x] for x in (1, 0))
        if not right or not wrong:
            kept |= set(rows[:4])
        elif len(right) < len(rows) / 2:
            kept |= {*right, *wrong[: len(right)]}
        else:
            kept |= set(rows)
    return [i in kept for i in range(len(groups))]


@given(ROLLOUTS)
def test_the_rows_are_those_of_the_strategies(rollouts):
    groups, success = [x[0] for x in rollouts], np.array([x[1] for x in rollouts])
    group_R = np.array([list(dict.fromkeys(groups)).index(g) for g in groups])
    assert kept_rows(group_R, success).tolist() == by_hand(groups, success)


def play(policy, rates, budget, seed=0):
    rng, step = np.random.default_rng(seed), policy.begin(list(range(len(rates))), budget)
    ids, rewards, rounds = [], [], 0
    while (counts_P := step.request()).any():
        at = np.repeat(np.arange(len(rates)), counts_P)
        got = (rng.random(len(at)) < np.array(rates)[at]).astype(float)
        step.observe(at.tolist(), got)
        ids, rewards, rounds = ids + at.tolist(), rewards + got.tolist(), rounds + 1
    return step, ids, np.array(rewards), rounds


def test_a_prompt_without_success_is_rescued_up_to_16_and_one_success_ends_it():
    _, ids, _, rounds = play(aero(generate=4), [0.0, 1.0], Budget(rollouts=64, floor=8))
    assert ids.count(0) >= 16
    assert rounds >= 5
    for seed in range(20):
        _, ids, rewards, _ = play(aero(generate=2), [0.1] * 8, Budget(rollouts=64, floor=0), seed)
        assert 32 <= len(ids) <= 64
        for x in set(ids):
            mine = [r for i, r in zip(ids, rewards, strict=True) if i == x]
            if len(mine) in (10, 12, 14):  # a rescue ends with the pair that holds the first success
                assert not any(mine[:-2])
                assert any(mine[-2:]) or len(ids) == 64


def test_advantages_by_hand():
    """1 of 8: the success +1 and a failure -1. 6 of 8: all. None of 16: the same small minus for four."""
    success = np.array([0, 0, 0, 1, 0, 0, 0, 0] + [1, 1, 1, 0, 1, 1, 0, 1] + [0] * 16, dtype=float)
    ids = [0] * 8 + [1] * 8 + [2] * 16
    step = aero().begin([0, 1, 2], Budget(rollouts=64))
    expected_R = step.expected_success(ids, success)
    got = advantages_of_step(success, ids, "policy", "group", expected_R=expected_R)
    assert got[:8] == pytest.approx([-1, 0, 0, 1, 0, 0, 0, 0], rel=1e-3)
    spread = np.sqrt(0.75 * 0.25)
    assert got[8:16] == pytest.approx((success[8:16] - 0.75) / spread, rel=1e-3)
    beta = 1 / 18
    assert got[16:20] == pytest.approx([-beta / np.sqrt(beta * (1 - beta))] * 4, rel=1e-3)
    assert (got[20:] == 0).all()
