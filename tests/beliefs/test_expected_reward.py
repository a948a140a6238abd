"""The reward expected of a rollout is in the rewards' units, and never looks at the rollout's own group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Line, Sums, reward_line

rollouts = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, 0.5, np.nan]), st.floats(-5, 5)), min_size=1, max_size=20
)


def columns(rows):
    group, success, rewards = (np.array(x) for x in zip(*rows, strict=True))
    return np.unique(group, return_inverse=True)[1], success, np.where(np.isnan(success), np.nan, rewards)


@given(rollouts, st.floats(-5, 5))
def test_free_of_the_own_group(rows, other):
    group_R, success_R, rewards_R = columns(rows)
    earlier = Sums(4.0, 2.0, 3.0, 2.0, 2.5, 5.0)
    before = reward_line(success_R, rewards_R, group_R, earlier)
    own = group_R == 0
    changed = reward_line(np.where(own, 1 - success_R, success_R), np.where(own, other, rewards_R), group_R, earlier)
    np.testing.assert_allclose(changed.at(0.3)[own], before.at(0.3)[own], atol=1e-9)
    np.testing.assert_allclose(changed.around_R[own], before.around_R[own], atol=1e-6)


@given(st.floats(-3, 3), st.floats(-3, 3), st.lists(st.booleans(), min_size=3, max_size=12))
def test_a_total_that_is_a_line_through_success(offset, slope, solved):
    success_R = np.array([0.0, 1.0, *solved])
    rewards_R = offset + slope * success_R
    earlier = Sums().plus(np.array([0.0, 1.0]), np.array([offset, offset + slope]))
    mean_R = np.linspace(0, 1, len(success_R))
    line = reward_line(success_R, rewards_R, np.arange(len(success_R)), earlier, jump=slope)
    np.testing.assert_allclose(line.at(mean_R), offset + slope * mean_R, atol=1e-6)


@given(st.floats(-3, 3), st.floats(0.1, 3))
def test_a_wrong_expectation_of_the_slope_is_forgotten(slope, jump):
    success_R = np.tile([0.0, 1.0], 200)
    line = reward_line(success_R, slope * success_R, np.arange(400), Sums(), jump)
    assert line.slope_R == pytest.approx(slope, abs=0.02 * (1 + abs(slope) + jump))


@pytest.mark.parametrize("groups", range(2, 8))
def test_the_variance_around_a_line_is_not_below_0_by_rounding(groups):
    success_R = np.array([1.0, 0.0] * groups)
    for offset, slope in [(0.3, 0.6), (0.1, 0.7), (0.2, 0.6), (0.1, 0.6)]:
        rewards_R = offset + slope * success_R
        assert (reward_line(success_R, rewards_R, np.arange(2 * groups) // 2, Sums(), slope).around_R >= 0.0).all()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-2, 3), st.sampled_from([0, 0.5, 1, np.nan])), min_size=1))
def test_the_line_is_a_ridge_regression_on_the_other_prompts(rows):
    """By hand: the slope minimises sum (r - mean - slope (s - mean))^2 + (slope - jump)^2 / 4."""
    ids, rewards, success = (list(x) for x in zip(*rows, strict=True))
    group_R = np.unique(ids, return_inverse=True)[1]
    line = reward_line(np.array(success, dtype=float), np.array(rewards), group_R, Sums(), jump=2.0)
    for row in range(len(rows)):
        others = np.array([(s, r) for x, r, s in rows if x != ids[row] and s == s])
        if not len(others):
            assert np.isnan(line.start_R[row])
            continue
        s, r = others.T
        slope = (np.sum((s - s.mean()) * (r - r.mean())) + 0.25 * 2.0) / (np.sum((s - s.mean()) ** 2) + 0.25)
        assert line.slope_R[row] == pytest.approx(slope, abs=1e-6)
        assert line.start_R[row] == pytest.approx(r.mean() - slope * s.mean(), abs=1e-6)
        rest = np.mean((r - line.start_R[row] - slope * s) ** 2)
        assert line.around_R[row] == pytest.approx(rest, abs=1e-6)


@pytest.mark.parametrize("state", [None, {}, {"n": 1}, {**Sums().state_dict(), "s": float("inf")}])
def test_a_damaged_state(state):
    with pytest.raises(ba.StateError):
        Sums.from_state(state)


def test_the_deviation_is_in_the_units_of_the_reward():
    exact = Line.exact(1.0, 4.0, 2)
    assert exact.deviation(np.array([0.25, 0.04])).tolist() == pytest.approx([1.5, 0.6])
    around = Line(np.zeros(2), np.full(2, -3.0), np.array([0.0, 4.0]))
    assert around.deviation(np.array([0.25, 0.25])) == pytest.approx([1.5, 2.5])


def test_sums_by_hand():
    none, some = Sums(), Sums().plus(np.array([0.0, 0.5, 1.0, 1.0]), np.array([1.0, 2.0, 3.0, 5.0]))
    assert (none.mean_success, none.var_success) == (0.5, 0.0)
    assert (some.mean_success, some.graded) == (2.5 / 4, 1)
    assert some.var_success == pytest.approx(np.var([0.0, 0.5, 1.0, 1.0]))
    assert Sums().plus(np.array([0.25]), np.array([1.0])).mean_success == 0.25
    assert (some.faded().n, some.faded().rr) == pytest.approx((0.9 * 4, 0.9 * 39))
    both = some.with_sums(Sums(n=1.0, within=0.5, pairs=2.0))
    assert (both.n, both.within, both.pairs) == (5, 0.5, 2)


def test_a_saved_state_loads():
    whole = Sums(*map(float, range(1, 12)))
    assert Sums.from_state(whole.state_dict()) == whole
