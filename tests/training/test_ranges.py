"""Where rewards lie: learned from them without being led astray, or given and then only advised upon."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.training.ranges import RewardRange, change, clipped

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))


def after(*steps, given=None):
    """The range after these steps."""
    rewards = RewardRange(given)
    for step in steps:
        values_R = np.array(step, dtype=float)
        rewards.learn(values_R, rewards.of(values_R), quiet=False)
    return rewards.of(np.zeros(1))


def test_rewards_in_0_1_have_that_range():
    assert after([0.4, 0.6], [np.nan, 0.5]) == (0.0, 1.0)
    assert after([np.nan]) == (0.0, 1.0)
    assert after([0.0, 1.0 + 1e-7]) == (0.0, 1.0)  # a float32 sum


def test_other_rewards_have_the_range_seen_which_grows():
    assert after([3.0, 8.0]) == (3.0, 8.0)
    assert after([3.0, 8.0], [4.0, 5.0], [9.0]) == (3.0, 9.0)
    assert after([0.0, 1.0], [-0.1]) == (-0.1, 1.0)


@pytest.mark.parametrize("value", [5.0, -3.0, 1e9, 1.5])
def test_equal_rewards_are_neither_success_nor_failure(value):
    values_R = np.full(4, value)
    assert 0.2 < clipped(values_R, RewardRange().of(values_R))[0][0] < 0.8


def test_a_lone_outlier_is_clipped():
    usual = np.linspace(-3, 3, 64)
    assert after(usual, [*usual, 1e6]) == (-3.0, 3.0)
    assert after([*usual, -1e6]) == (-3.0, 3.0)
    assert after([*usual] * 20, [1e6, 1e6, 1e6] * 10) == (-3.0, 1e6)  # not alone any more


def test_rare_successes_are_no_outliers():
    assert after([0.0] * 63 + [10.0]) == (0.0, 10.0)


@given(st.lists(st.lists(numbers, min_size=1, max_size=20), min_size=1, max_size=6), numbers)
def test_what_was_believed_moves_with_the_range_exactly(steps, reward):
    """A success before the change, moved by what `learn` returns, is the success of the same reward after it."""
    rewards = RewardRange()
    for step in steps:
        values_R = np.array(step)
        used = rewards.of(values_R)
        scale, shift = rewards.learn(values_R, used)
        now = rewards.of(values_R)
        assert now[0] <= used[0] < used[1] <= now[1]
        unit = (reward - used[0]) / (used[1] - used[0])
        assert scale * unit + shift == pytest.approx((reward - now[0]) / (now[1] - now[0]), rel=1e-6, abs=1e-6)
        assert ((clipped(values_R, used)[0] >= 0) & (clipped(values_R, used)[0] <= 1)).all()


def test_a_range_that_is_too_narrow_is_said_once(caplog):
    assert after([-3.0, 3.01], [4.0], given=(-3.0, 3.0)) == (-3.0, 3.0)
    (said,) = [record.message for record in caplog.records]
    assert "reward_range=(-3.0, 3.0)" in said
    assert "from -3 to 3.01 were observed" in said
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


def test_the_state_to_the_bit():
    rewards, other = RewardRange(), RewardRange()
    for step in ([1.0, 0.0], [0.1, 7.3, np.nan], [-2.0] * 3):
        rewards.learn(np.array(step), rewards.of(np.array(step)))
    assert other.load_state_dict(rewards.state_dict()) == (1.0, 0.0)
    assert other.state_dict() == rewards.state_dict()


def test_another_range_moves_what_was_believed_or_is_refused():
    saved = RewardRange((0.0, 2.0))
    saved.learn(np.array([0.0, 1.0]), (0.0, 2.0))
    assert RewardRange((0.0, 4.0)).load_state_dict(saved.state_dict()) == change((0, 2), (0, 4)) == (0.5, 0.0)
    with pytest.raises(ba.StateError, match=r"reward_range=\(0.5, 4.0\).*about rewards in \(0.0, 2.0\).*contains both"):
        RewardRange((0.5, 4.0)).load_state_dict(saved.state_dict())


@pytest.mark.parametrize("change", [{"range": [1, 0]}, {"range": "x"}, {"seen": "x"}, {"recent": [[1]] * 2 + [2]}])
def test_a_damaged_state(change):
    with pytest.raises(ba.StateError):
        RewardRange().load_state_dict({**RewardRange().state_dict(), **change})
