"""Rewards: their checks, the map to [0, 1], and which groups are mixed."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import InputError
from budgetalloc.beliefs.rewards import (
    EQUAL,
    as_rewards,
    check_outcomes,
    check_range,
    check_rewards,
    check_success,
    extremes,
    merge_near_ties,
    mixed_groups,
    to_unit,
)


def test_none_is_nan_and_the_ends_of_the_range_are_allowed():
    np.testing.assert_array_equal(check_rewards([0, None, 1, 0.5], 4), [0, np.nan, 1, 0.5])
    np.testing.assert_array_equal(as_rewards([-5, None], 2), [-5, np.nan])


@pytest.mark.parametrize(
    ("rewards_R", "rows", "text"),
    [
        ([0.5, 1.5, 2.5], 3, "rewards_R[1] = 1.5 lies outside [0, 1]"),
        ([-0.25], 1, "rewards_R[0] = -0.25 lies outside [0, 1]"),
        ([0.5, np.inf], 2, "rewards_R[1] = inf: give a finite number"),
        (["good"], 1, "rewards_R=['good']"),
        ([[0.5]], 1, "rewards_R has shape (1, 1) for 1 ids"),
        ([0.5], 2, "rewards_R has shape (1,) for 2 ids"),
    ],
)
def test_bad_rewards_are_named(rewards_R, rows, text):
    with pytest.raises(InputError, match=re.escape(text)):
        check_rewards(rewards_R, rows)


@pytest.mark.parametrize("bad", [None, 3, (1,), (0, 1, 2), (1, 1), (2, 1), (0, np.inf), (np.nan, 1), ("a", "b")])
def test_a_bad_range_is_named(bad):
    with pytest.raises(InputError, match=re.escape(f"reward_range={bad!r}: give the lowest and highest reward")):
        check_range(bad)


@pytest.mark.parametrize("bad", [True, np.nan, np.inf, 10**400, ["accuracy"], {"accuracy": 1}])
def test_a_rule_of_success_of_no_known_kind_is_refused(bad):
    for good in (None, "accuracy", 0, 0.5, np.int64(1), lambda rewards: rewards["accuracy"]):
        check_success(good)
    with pytest.raises(InputError, match=r"^success=.*: pass the name of a reward function, its place in the list"):
        check_success(bad)


def test_a_range_is_two_floats():
    assert check_range([-3, 3]) == (-3.0, 3.0)
    assert check_range(np.array([0.0, 1e-3])) == (0.0, 1e-3)


@given(st.floats(-100, 100), st.floats(0.01, 100), st.lists(st.floats(0, 1), min_size=1, max_size=9))
@settings(max_examples=100, deadline=None)
def test_the_range_becomes_zero_to_one(low, width, shares):
    np.testing.assert_allclose(to_unit(low + np.array(shares) * width, (low, low + width)), shares, atol=1e-6)


def test_only_a_rounding_error_beyond_the_range_is_moved_to_its_edge():
    assert to_unit([-5e-7, 1 + 5e-7], (0, 1)).tolist() == [0.0, 1.0]
    assert to_unit([-5e-6, 1 + 5e-6, 0.5], (0, 1)).tolist() == [-5e-6, 1 + 5e-6, 0.5]
    assert np.isnan(to_unit([np.nan], (0, 1))).all()


rewards = st.sampled_from([0.0, 1.0, 0.2, -3.0, 1e6, float("nan")])


@given(st.lists(st.tuples(st.integers(0, 3), rewards), max_size=20))
@settings(max_examples=100, deadline=None)
def test_mixed_groups_are_those_with_unequal_rewards(rows):
    group_R = np.array([group for group, _ in rows], dtype=np.int64)
    rewards_R = np.array([reward for _, reward in rows])
    scored = [{reward for at, reward in rows if at == group and reward == reward} for group in range(4)]
    low_G, high_G = extremes(rewards_R, group_R, 4)
    assert low_G.tolist() == [min(s, default=np.inf) for s in scored]
    assert high_G.tolist() == [max(s, default=-np.inf) for s in scored]
    assert mixed_groups(rewards_R, group_R, 4).tolist() == [len(s) > 1 for s in scored]


@pytest.mark.parametrize(
    ("low", "high", "mixed"),
    [
        (0.2, float(np.float32(0.2)), False),  # the same reward in two types
        (0.0, 5e-7, False),
        (0.0, 2e-6, True),
        (1000.0, 1000.0005, False),  # relative to the largest
        (1000.0, 1000.002, True),
        (999.999, 1000.0, False),  # the larger of the two: more than 1e-6 of 999.999
        (-1000.0, -999.9995, False),
        (0.0, 0.0, False),
    ],
)
def test_equality_is_relative_to_the_largest_reward_or_to_one(low, high, mixed):
    assert mixed_groups([low, high], np.array([0, 0]), 1).tolist() == [mixed]


def test_the_tolerance_itself():
    """Allowed as a rounding error of a success, no longer moved to the edge, and not yet unequal."""
    assert check_rewards([-EQUAL, 1 + EQUAL], 2).tolist() == [0, 1]
    assert to_unit([-EQUAL], (0, 1)).tolist() == [-EQUAL]
    assert mixed_groups([0.0, EQUAL], np.array([0, 0]), 1).tolist() == [False]


def test_a_success_without_a_reward_is_none():
    rewards, success = check_outcomes([-3.0, None, 7.0], [0, 1, None], 3)
    np.testing.assert_array_equal(rewards, [-3, np.nan, 7])
    np.testing.assert_array_equal(success, [0, np.nan, np.nan])
    rewards, success = check_outcomes([0.5, None], None, 2)
    np.testing.assert_array_equal(rewards, success)
    with pytest.raises(InputError, match=re.escape("success_R[1] = 2 lies outside")):
        check_outcomes([-3.0, 1.0], [0, 2], 2)


# Sums and differences of these are exact, so that a range on the resolution's edge is decided without rounding.
EIGHTHS = st.integers(-24, 24).map(lambda n: n / 8)
GROUPS = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.just(np.nan), EIGHTHS)), min_size=1, max_size=20)


@settings(max_examples=200, deadline=None)
@given(GROUPS, st.integers(0, 16).map(lambda n: n / 8), EIGHTHS)
def test_a_group_is_mixed_exactly_if_its_range_is_above_the_resolution(rows, resolution, shift):
    ids_R, rewards_R = [group for group, _ in rows], np.array([reward for _, reward in rows])
    group_R = np.array(ids_R)
    ranges_G = [
        np.ptp(known) if len(known := rewards_R[(group_R == g) & ~np.isnan(rewards_R)]) else 0 for g in range(4)
    ]
    mixed_G = mixed_groups(rewards_R, group_R, 4, resolution)
    assert mixed_G.tolist() == [bool(width > resolution) for width in ranges_G]
    np.testing.assert_array_equal(mixed_groups(rewards_R + shift, group_R, 4, resolution), mixed_G)

    level_R = merge_near_ties(rewards_R, ids_R, resolution)
    np.testing.assert_array_equal(np.isnan(level_R), np.isnan(rewards_R))
    np.testing.assert_array_equal(level_R[mixed_G[group_R]], rewards_R[mixed_G[group_R]])
    assert not mixed_groups(level_R, group_R, 4)[~mixed_G].any()
    np.testing.assert_array_equal(merge_near_ties(rewards_R + shift, ids_R, resolution), level_R + shift)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6)), min_size=1))
def test_without_a_resolution_nothing_changes(rows):
    ids_R, rewards_R = [group for group, _ in rows], np.array([reward for _, reward in rows])
    group_R = np.array(ids_R)
    np.testing.assert_array_equal(merge_near_ties(rewards_R, ids_R, 0.0), rewards_R)
    ranges = [(min(of), max(of)) for g in range(4) if (of := [x for at, x in rows if at == g] or [0.0])]
    expected_G = [high - low > EQUAL * max(1.0, abs(low), abs(high)) for low, high in ranges]
    assert mixed_groups(rewards_R, group_R, 4, 0.0).tolist() == expected_G


def test_decimal_rewards_on_the_edge_count_as_a_near_tie():
    """0.8 - 0.7 is above 0.1 by a rounding error."""
    assert 0.8 - 0.7 > 0.1
    assert not mixed_groups(np.array([0.7, 0.8]), np.array([0, 0]), 1, 0.1).any()
    assert mixed_groups(np.array([0.7, 0.801]), np.array([0, 0]), 1, 0.1).all()
