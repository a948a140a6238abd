"""Quantities learned from all prompts together: by hand, and for large pools."""

import numpy as np
import pytest

from budgetalloc.beliefs.empirical_bayes import Drift, _sum, moved_evidence, pooled_prior
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.errors import StateError


def test_a_sum_over_more_prompts_than_63_bits_hold_does_not_overflow():
    """More than 2^23 prompts, whose sum of integers of 2^-40 needs more than 63 bits."""
    assert _sum(np.ones(9_000_000)) == 9_000_000
    assert _sum(np.zeros(0)) == 0


def test_a_sum_over_several_slices_does_not_depend_on_the_order():
    shares_P = np.random.default_rng(0).random(5_000_000)
    assert _sum(shares_P) == _sum(shares_P[::-1])


def test_the_prior_of_a_small_pool_by_hand():
    """Means 1/4 and 2/3, E[p(1-p)] = ab / (n (n + 1)) of 3/20 and 4/21; the start is 16 prompts of 1/4 and 1/8."""
    mean = (1 / 4 + 2 / 3 + 16 / 4) / 18
    spread = (3 / 20 + 4 / 21 + 16 / 8) / 18
    strength = spread / (mean * (1 - mean) - spread)
    expected = (mean * strength, (1 - mean) * strength)
    assert pooled_prior(Beta([1.0, 4.0], [3.0, 2.0]), (0.5, 1.5)) == pytest.approx(expected, rel=1e-9)


def drifting():
    """A drift after some steps, with open visits of the first and the last of three prompts."""
    drift = Drift(3, 0.5, 2.0, 30.0)
    drift.open(np.array([0, 2]), np.array([4, 3]), np.array([0.25, 0.6]))
    drift.add(np.array([0, 2]), np.array([1.0, 2.0]), np.array([4.0, 5.0]))
    drift.add(np.array([0]), np.array([1.0]), np.array([2.0]))
    return drift


def test_a_step_of_the_drift_by_hand():
    """Scores 4 (2 - 1.5 + 1.125 / 2) and 3 (2 - 3 + 1.2 / 2), weights 4^2 * 1.125 and 3^2 * 1.2."""
    drift = drifting()
    drift.end_step(np.array([0, 2]))
    assert drift.score == pytest.approx(0.99 * 2 + 4.25 - 1.2)
    assert drift.information == pytest.approx(0.99 * 30 + 18 + 10.8)
    rise = drift.score / (drift.information + 1e4)
    assert drift.total == pytest.approx(0.5 + rise)
    assert drift.moved(np.array([0, 1, 2])) == pytest.approx([rise, 0.5 + rise, rise])


def test_open_visits_are_rescaled_and_clipped():
    drift = drifting()
    drift.rescale(0.5, 0.25)
    assert drift.visits_P["successes"].tolist() == [2.5, 0, 2.25]
    assert drift.visits_P["mean"] == pytest.approx([0.375, 0.25, 0.55])
    drift = drifting()
    drift.rescale(3, -1)
    assert drift.visits_P["successes"].tolist() == [0, 0, 1]
    assert drift.visits_P["mean"].tolist() == pytest.approx([0, 0, 0.8])
    drift = drifting()
    drift.rescale(3, 0)
    assert drift.visits_P["successes"].tolist() == [6, 0, 5]  # all of their rollouts
    assert drift.visits_P["mean"].tolist() == [0.75, 0, 1]


def test_a_new_drift_is_0_and_new_rows_are_empty():
    drift = Drift()
    assert (len(drift.visits_P), drift.total, drift.score, drift.information, drift.rate) == (0, 0, 0, 0, 0)
    drift.reserve(2)
    drift.reserve(3)
    assert drift.visits_P.tolist() == [(0.0,) * 6] * 4  # doubled
    assert Drift(2).visits_P.tolist() == [(0.0,) * 6] * 2


@pytest.mark.parametrize("drift", [Drift(3), drifting()])
def test_a_saved_drift_is_read_back(drift):
    again = Drift.from_state(drift.state_dict(3), 3)
    assert (again.total, again.score, again.information) == (drift.total, drift.score, drift.information)
    assert again.visits_P.tolist() == drift.visits_P.tolist()


def test_a_state_without_a_drift_begins_a_new_one():
    assert Drift.from_state({}, 3).visits_P.tolist() == [(0.0,) * 6] * 3


NAN = np.zeros((3, 6))
NAN[1, 2] = np.nan


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ({"drift": [np.nan, 0.0, 1.0]}, "out of range"),
        ({"drift": [0.0, np.inf, 1.0]}, "out of range"),
        ({"drift": [0.0, 0.0, -0.5]}, "out of range"),
        ({"visits": NAN}, "out of range"),
        ({"drift": [0.0, 0.0]}, "drift or its visits are damaged"),
        ({"drift": "text"}, "drift or its visits are damaged"),
        ({"visits": np.zeros((2, 6))}, "drift or its visits are damaged"),
    ],
)
def test_a_damaged_drift_is_refused(damage, text):
    with pytest.raises(StateError, match=text):
        Drift.from_state(drifting().state_dict(3) | damage, 3)


def test_evidence_against_a_move_fades():
    successes, failures = moved_evidence(np.full(3, 4.0), np.full(3, 8.0), np.log([2.0, 1.0, 0.25]))
    assert successes == pytest.approx([4, 4, 1])
    assert failures == pytest.approx([4, 8, 8])
