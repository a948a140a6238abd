"""The reward expected of a rollout is in the rewards' units, and never looks at the rollout's own group."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.expected import Sums, bernoulli_variance, expected_reward, reward_line
from budgetalloc.policies.advantages import batch_advantages

rollouts = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, 0.5, np.nan]), st.floats(-5, 5)), min_size=1, max_size=20
)


def columns(rows):
    group, success, rewards = (np.array(x) for x in zip(*rows, strict=True))
    return np.unique(group, return_inverse=True)[1], success, np.where(np.isnan(success), np.nan, rewards)


@given(rollouts, st.floats(-5, 5))
def test_free_of_the_own_group(rows, other):
    group_R, success_R, rewards_R = columns(rows)
    mean_R, earlier = np.full(len(rows), 0.3), Sums(4.0, 2.0, 3.0, 2.0, 2.5, 5.0)
    before, around = expected_reward(mean_R, success_R, rewards_R, group_R, earlier)
    own = group_R == 0
    changed, changed_around = expected_reward(
        mean_R, np.where(own, 1 - success_R, success_R), np.where(own, other, rewards_R), group_R, earlier
    )
    np.testing.assert_allclose(changed[own], before[own], atol=1e-9)
    np.testing.assert_allclose(changed_around[own], around[own], atol=1e-6)


@given(st.floats(-3, 3), st.floats(-3, 3), st.lists(st.booleans(), min_size=3, max_size=12))
def test_a_total_that_is_a_line_through_success(offset, slope, solved):
    success_R = np.array([0.0, 1.0, *solved])
    rewards_R = offset + slope * success_R
    earlier = Sums().plus(np.array([0.0, 1.0]), np.array([offset, offset + slope]))
    mean_R = np.linspace(0, 1, len(success_R))
    expected_R, _ = expected_reward(mean_R, success_R, rewards_R, np.arange(len(success_R)), earlier)
    np.testing.assert_allclose(expected_R, offset + slope * mean_R, atol=1e-6)


def test_where_nobody_has_succeeded_the_expected_reward_is_the_mean():
    expected_R, _ = expected_reward(np.full(3, 0.5), np.zeros(3), np.array([1.0, 1.0, 0.4]), np.arange(3), Sums())
    np.testing.assert_allclose(expected_R, [0.7, 0.7, 1.0])


def test_with_nothing_to_compare_there_is_no_advantage():
    expected_R, around_R = expected_reward(np.array([0.5]), np.array([1.0]), np.array([7.0]), np.array([0]), Sums())
    assert expected_R.tolist() == [7.0]
    assert around_R.tolist() == [1.0]


@pytest.mark.parametrize("groups", range(2, 8))
def test_the_variance_around_a_line_is_not_below_0_by_rounding(groups):
    success_R = np.array([1.0, 0.0] * groups)
    for offset, slope in [(0.3, 0.6), (0.1, 0.7), (0.2, 0.6), (0.1, 0.6)]:
        rewards_R = offset + slope * success_R
        _, _, around_R = reward_line(success_R, rewards_R, np.arange(2 * groups) // 2, Sums())
        assert (around_R >= 0.0).all()


@given(st.floats(0.01, 1), st.floats(0, 1))
def test_rescaled(scale, shift):
    success_R, rewards_R = np.array([0.0, 1.0, 0.5]), np.array([1.0, 4.0, -2.0])
    moved = Sums().plus(scale * success_R + shift, rewards_R)
    scaled = Sums().plus(success_R, rewards_R).rescaled(scale, shift)
    assert scaled.state_dict() == pytest.approx(moved.state_dict())


@pytest.mark.parametrize("state", [None, {}, {"n": 1}, {**Sums().state_dict(), "s": float("inf")}])
def test_a_damaged_state(state):
    with pytest.raises(ba.StateError):
        Sums.from_state(state)


@given(rollouts)
def test_the_posterior_baseline_of_a_batch_is_on_the_same_line(rows):
    """With no past but a point at each end of the range, of a hundredth of a row."""
    _, success_R, rewards_R = columns(rows)
    assume(np.isfinite(rewards_R).any() and np.nanmax(rewards_R) - np.nanmin(rewards_R) > 1e-3)  # else all are 0
    belief_R = ba.Beta(np.full(len(rows), 0.3), np.full(len(rows), 0.7))
    alone_R = np.arange(len(rows))  # each its own prompt: the mean of the belief is the share
    ends = Sums(n=0.02, s=0.01, r=0.0, ss=0.01, sr=0.05, rr=0.5)
    expected_R, _ = expected_reward(belief_R.mean, success_R, rewards_R, alone_R, ends)
    advantages_R = batch_advantages(
        rewards_R, alone_R, "posterior", "none", success_R=success_R, belief_R=belief_R, reward_range=(-5, 5)
    )
    known_R = ~np.isnan(rewards_R)
    np.testing.assert_allclose(advantages_R[known_R], (rewards_R - expected_R)[known_R], atol=1e-9)
    assert (advantages_R[~known_R] == 0).all()


def test_sums_by_hand():
    none, some = Sums(), Sums().plus(np.array([0.0, 0.5, 1.0, 1.0]), np.array([1.0, 2.0, 3.0, 5.0]))
    assert (none.mean_success, none.spread) == (0.5, 1.0)
    assert some.mean_success == 2.5 / 4
    assert Sums().plus(np.array([0.25]), np.array([1.0])).mean_success == 0.25
    assert (some.faded().n, some.faded().rr) == pytest.approx((0.9 * 4, 0.9 * 39))
    assert some.spread == pytest.approx((2.25 / 4 - 0.625**2) / (0.625 * 0.375))
    assert Sums().plus(np.ones(3), np.ones(3)).spread == 1.0  # all alike: none to be compared with


def test_bernoulli_variance_is_at_least_that_of_a_twentieth():
    least = 0.05 * 0.95
    got = bernoulli_variance(np.array([0.0, 0.05, 0.2, 0.95, 1.0]))
    assert got == pytest.approx([least, least, 0.16, least, least])


def test_the_deviation_is_that_of_success_in_the_units_of_the_reward():
    success_R, rewards_R = np.array([1.0, 0.0, 1.0, 0.0]), np.array([3.5, 0.5, 3.5, 0.5])
    _, deviation_R = expected_reward(np.array([0.25, 0.5, 0.25, 0.5]), success_R, rewards_R, np.arange(4) // 2, Sums())
    np.testing.assert_allclose(deviation_R**2, [1.6875, 2.25, 1.6875, 2.25], rtol=1e-9)
