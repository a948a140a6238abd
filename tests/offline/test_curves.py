"""When a curve reaches a level, and the interval of the share of a run that this takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.errors import InputError
from budgetalloc.offline.intervals import reached, share_reached


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
