"""Intervals over few seeds: the numbers of scipy's t-tests, and the coverage that they claim."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from budgetalloc.errors import InputError
from budgetalloc.offline.intervals import interval, reached, share_reached, stratified_interval

DRAWS = 3000
numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))


def missed(intervals, truth):
    """The share of intervals that lie below the truth, and the share of those that lie above it."""
    low, high = np.array(intervals).T
    return np.mean(high < truth), np.mean(low > truth)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "deviations"), [((3, 5, 10), (1, 0.3, 2)), ((3, 5) * 6, (1,) * 12), ((5,) * 12, (0.2, 1, 3) * 4)]
)
def test_the_stratified_interval_covers_the_mean_of_means(sizes, deviations):
    rng = np.random.default_rng(0)
    means = np.arange(len(sizes))
    draws = [
        [rng.normal(mean, deviation, size) for mean, deviation, size in zip(means, deviations, sizes, strict=True)]
        for _ in range(DRAWS)
    ]
    below, above = missed([stratified_interval(samples) for samples in draws], means.mean())
    assert 0.93 <= 1 - below - above <= 0.97


@given(st.lists(numbers, min_size=2, max_size=12), st.floats(0.5, 0.99))
def test_the_interval_is_that_of_scipys_t_test(values, level):
    if np.ptp(values) == 0:
        assert interval(values, level) == pytest.approx((values[0], values[0]))
        return
    wanted = stats.ttest_1samp(values, 0).confidence_interval(level)
    assert interval(values, level) == pytest.approx((wanted.low, wanted.high), rel=1e-9, abs=1e-6)


@given(*[st.lists(numbers, min_size=2, max_size=8, unique=True)] * 2)
def test_two_samples_are_those_of_scipys_welch_test(first, second):
    """The difference of two means is twice the mean of the one mean and of the other's negative."""
    wanted = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    got = 2 * np.array(stratified_interval([first, np.negative(second)]))
    assert got == pytest.approx([wanted.low, wanted.high], rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("values", [[], [0.5], [0.5, np.nan], [0.5, np.inf], [1e308, -1e308]])
def test_no_interval_without_a_spread(values):
    assert np.isnan(interval(values)).all()
    assert np.isnan(stratified_interval([[1.0, 2.0], values])).all()


def test_a_level_is_first_reached_on_the_line_between_two_points():
    spent, level = [0.0, 10.0, 20.0, 30.0], [0.0, 0.5, 0.2, 1.0]
    assert [reached(spent, level, goal) for goal in (0.0, 0.25, 0.5, 0.75, 1.5)] == [
        0.0,
        5.0,
        10.0,
        pytest.approx(26.875),
        np.inf,
    ]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8), st.floats(-1, 1))
def test_no_point_before_is_as_high_and_a_curve_that_ends_higher_is_never_missed(level, goal):
    spent = np.arange(len(level)) * 10.0
    at = reached(spent, level, goal)
    assert all(value < goal for value, x in zip(level, spent, strict=True) if x < at)
    assert (max(level) >= goal) == np.isfinite(at)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_interval_of_a_share_covers_it(seeds):
    """Curves that rise as lines: the policy's reaches the end of uniform's after 0.6 of the rollouts."""
    rng = np.random.default_rng(seeds)
    rollouts = np.linspace(0, 100, 5)
    covered = []
    for _ in range(1500):
        level, own, base = rng.normal(0, 0.05, (3, seeds, 1))
        curves = 0.4 + 0.005 * rollouts + level + own, 0.4 + 0.003 * rollouts + level + base
        _, low, high = share_reached(*curves, rollouts, 100)
        covered.append(low <= 0.6 <= high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.025)


def test_the_share_is_of_what_the_base_spent_and_one_seed_has_no_interval():
    share, low, high = share_reached([[0.0, 0.5, 1.0]], [[0.0, 0.5]], [0, 30, 60], whole=90)
    assert share == pytest.approx(30 / 90)
    assert np.isnan([low, high]).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([[0.1], [0.2]], [[0.1]], [0.0], 1.0), r"shapes \(2, 1\) and \(1, 1\)"),
        (([[0.1]], [[0.1]], [0.0, 1.0], 1.0), r"spent_G and level_G have shapes \(2,\) and \(1,\)"),
        (([[0.1]], [[0.1]], [0.0], 0.0), "whole=0.0"),
        ((["a"], [[0.1]], [0.0], 1.0), "own_SG"),
    ],
)
def test_bad_curves_are_named(given, said):
    with pytest.raises(InputError, match=said):
        share_reached(*given)
