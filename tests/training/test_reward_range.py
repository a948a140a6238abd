"""The range of rewards: learned without outliers, or given by the user, with a warning if it does not fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.training.reward_range import RewardRange
from budgetalloc.training.success import Measure, Rule

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))


def after(*steps, given=None):
    """The range after these steps."""
    rewards = RewardRange(given)
    for step in steps:
        values_R = np.array(step, dtype=float)
        rewards.learn(values_R)
    return rewards.of(np.zeros(1))


def test_rewards_in_0_1_have_that_range():
    assert after([0.4, 0.6], [np.nan, 0.5]) == (0.0, 1.0)
    assert after([np.nan]) == (0.0, 1.0)
    assert after([0.0, 1.0 + 1e-7]) == (0.0, 1.0)  # a float32 sum


def test_other_rewards_have_the_range_seen_which_grows():
    assert after([3.0, 8.0] * 8) == (3.0, 8.0)
    assert after([3.0, 8.0] * 8, [4.0, 5.0], [9.0]) == (3.0, 9.0)
    assert after([0.0, 1.0] * 8, [-0.1]) == (-0.1, 1.0)


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=7, unique=True))
def test_a_range_from_few_rewards_has_a_margin(values):
    values_R = np.array(values, dtype=float)
    low, high = RewardRange().of(values_R)
    assert high - low == pytest.approx(16 / len(values) * np.ptp(values_R))
    assert low + high == pytest.approx(values_R.min() + values_R.max(), abs=1e-6)


@pytest.mark.parametrize("order", [1, -1])
def test_all_rewards_of_a_large_step_count(order):
    """In the order of their prompts, of which the last 1000 are only a few."""
    assert after(*[np.linspace(-3, 3, 3000)[::order]] * 3) == (-3.0, 3.0)
    assert after(*[np.linspace(-3, 3, 300)[::order]] * 9) == (-3.0, 3.0)


@pytest.mark.parametrize("value", [5.0, -3.0, 1e9, 1.5])
def test_equal_rewards_are_neither_success_nor_failure(value):
    values_R = np.full(4, value)
    assert 0.2 < to_unit(values_R, RewardRange().of(values_R))[0] < 0.8


def test_a_lone_outlier_is_clipped():
    usual = np.linspace(-3, 3, 64)
    assert after(usual, [*usual, 1e6]) == (-3.0, 3.0)
    assert after([*usual, -1e6]) == (-3.0, 3.0)
    assert after([*usual] * 20, [1e6, 1e6, 1e6] * 10) == (-3.0, 1e6)  # not alone any more
    assert after([*usual, -7.0]) == (-3.0, 3.0)  # more than half a width away
    assert after([*usual, -5.0]) == (-5.0, 3.0)


@pytest.mark.parametrize("outlier", [-1.0, -5.0, -10.0, -1000.0, -1e308])
def test_one_outlier_among_equal_rewards_is_clipped(outlier):
    """It must not set the range of the whole run."""
    usual = [0.0, 1.0] * 32
    assert after([outlier] + [0.0] * 63) == (0.0, 1.0)
    assert after([outlier] + [0.0] * 63, *[usual] * 3) == (0.0, 1.0)
    assert after([outlier, 0.0, 0.0], *[usual] * 17) == (0.0, 1.0)  # of three any may be one: it is forgotten


def test_rare_successes_are_no_outliers():
    assert after([0.0] * 63 + [10.0]) == (0.0, 10.0)
    assert after([0.0] * 255 + [1.0]) == (0.0, 1.0)
    assert after([0.0] * 256, [0.0] * 255 + [10.0], *[[0.0] * 256] * 8) == (0.0, 10.0)
    assert after([-1.0] * 63 + [1.0]) == (-1.0, 1.0)


def test_a_range_that_is_too_narrow_is_said_once(caplog):
    assert after([-3.0, 3.01], [4.0], given=(-3.0, 3.0)) == (-3.0, 3.0)
    (said,) = [record.message for record in caplog.records]
    assert "reward_range=(-3.0, 3.0)" in said
    assert "A reward of 3.01" in said
    assert "rewards_clipped" in said


def test_a_range_that_is_far_too_wide_is_said_once_after_1000_rewards(caplog):
    steps = [[0.0, 1.2] * 100] * 7
    after(*steps[:4], given=(-1.0, 10.0))
    assert not caplog.records
    after(*steps, given=(-1.0, 10.0))
    (said,) = [record.message for record in caplog.records]
    assert "4 times as wide as the 1000 rewards so far, from 0 to 1.2" in said
    caplog.clear()
    after(*steps, given=(-1.0, 3.0))
    after(*[[0.0] * 200] * 7, given=(0.0, 1.0))  # nobody has succeeded yet
    after(*steps)
    assert not caplog.records


def test_an_outlier_is_reported_once(caplog):
    after(*[[0.0, 1.0] * 32 + [-50.0 - step] for step in range(4)])
    (said,) = [record.message for record in caplog.records]
    assert "A reward of -50 lies outside the range of the other rewards, 0 to 1." in said
    assert "rewards_clipped" in said
    caplog.clear()
    after(*[np.random.default_rng(step).normal(size=64) for step in range(20)])
    after([0.0] * 63 + [1.0])
    assert not caplog.records


@pytest.mark.parametrize("change", [{"range": [1, 0]}, {"range": "x"}, {"seen": "x"}, {"recent": [[1]] * 2 + [2]}])
def test_a_damaged_state(change):
    with pytest.raises(ba.StateError):
        RewardRange().load_state_dict({**RewardRange().state_dict(), **change})


@given(st.lists(st.lists(numbers, min_size=1, max_size=20), min_size=1, max_size=6))
def test_success_always_lies_in_0_1(steps):
    rewards = RewardRange()
    for step in steps:
        step_R = np.array(step)
        low, high = rewards.of(step_R)
        assert low < high
        success_R = Measure(Rule(), (low, high), ("reward",)).success(step_R, step_R[:, None])
        assert ((success_R >= 0) & (success_R <= 1)).all()
        rewards.learn(step_R)


def test_it_is_fixed_after_1000_rewards_but_for_what_recurs_far_outside():
    usual = [-3.0, 3.0] * 32
    assert after(*[usual] * 10, [*usual, 4.0, 4.0]) == (-3.0, 4.0)
    assert after(*[usual] * 20, [*usual, 4.0, 4.0]) == (-3.0, 3.0)
    assert after(*[usual] * 20, *[[*usual[1:], 10.0]] * 3) == (-3.0, 10.0)
    assert after(*[usual] * 20, *[[0.0, 0.1] * 32] * 40) == (-3.0, 3.0)  # and never shrinks


def test_a_range_of_first_rewards_that_misled_is_mended_within_1000():
    assert after([-999.0, 1.0], *[[0.0, 1.0] * 32] * 20) == (0.0, 1.0)


def test_the_state_to_the_bit():
    rewards, other = RewardRange(), RewardRange()
    for step in ([1.0, 0.0], [0.1, 7.3, np.nan], [-2.0] * 3):
        rewards.learn(np.array(step))
    other.load_state_dict(rewards.state_dict())
    assert other.state_dict() == rewards.state_dict()


def test_another_range_is_refused():
    saved = RewardRange((0.0, 2.0))
    with pytest.raises(ba.StateError, match=r"reward_range=\(0.5, 4.0\).*about rewards in \(0.0, 2.0\)"):
        RewardRange((0.5, 4.0)).load_state_dict(saved.state_dict())
