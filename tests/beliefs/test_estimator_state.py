"""The evidence of a saved state: what fits is read, and each entry that does not fit is refused."""

import numpy as np
import pytest

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.errors import StateError
from budgetalloc.testing import same_state


def state(**changed):
    """Two prompts at step 5, the first of which was graded and has ended its first visit."""
    kept = {"version": 2, "step": 5, "ids": ["a", 1], "earned": [1.5, 4.0], "met": 1}
    kept |= {"evidence": np.array([[3.0, 1.0], [0.0, 2.0]]), "graded": np.array([0.5, 0.0]), "last": np.array([5, 0])}
    return kept | changed


def loaded(given):
    estimator = BetaEstimator()
    estimator.load_state_dict(given)
    return estimator


def test_every_entry_is_read_and_is_a_copy():
    given = state()
    estimator = loaded(given)
    for name in ("evidence", "graded", "last"):
        given[name] += 9
    assert same_state(estimator.state_dict(), state())
    assert (estimator.step, estimator.first_visits, estimator.ids()) == (5, (1.5, 4.0), ["a", 1])


NOBODY = {"ids": [], "evidence": np.zeros((0, 2)), "graded": [], "last": [], "met": 0, "earned": [0.0, 0.0]}


@pytest.mark.parametrize(
    "changed",
    [
        NOBODY | {"step": 0},
        {"met": 0},
        {"met": 2},
        {"earned": [0.0, 0.0]},
        {"earned": [4.0, 4.0]},
        {"graded": [1.0, 0.0]},  # as many as the failures
        {"graded": [1.0 + 5e-7, 0.0]},  # and a rounding error
        {"last": [0, 5]},
        {"version": np.array(2), "step": np.array(5), "met": np.array(1)},  # as an .npz file may hold them
    ],
)
def test_the_ends_of_every_range_are_allowed(changed):
    loaded(state(**changed))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"version": 1}, "version 1, and this budgetalloc reads version 2"),
        ({"version": 3}, "version 3, and this budgetalloc reads version 2"),
        ({"version": np.array([2])}, "version"),
        ({"ids": ["a", "a"]}, "2 ids, of which 1"),
        ({"ids": ["a"]}, "evidence does not hold finite numbers of shape .1, 2."),
        ({"ids": ["a", None]}, "ids"),
        ({"evidence": np.ones((3, 2))}, "evidence does"),
        ({"evidence": np.ones(3)}, "evidence does"),
        ({"evidence": "text"}, "evidence="),
        ({"step": "soon"}, "step='soon'"),
        ({"last": [5]}, "last does"),
        ({"graded": [0.5]}, "graded does"),
        ({"last": [0.5, 1.0]}, "last does not hold whole numbers"),
        ({"step": -1}, "steps 0 to -1"),
        ({"step": 2**53}, "step does"),
        ({"met": -1}, "first visits"),
        ({"earned": [1.0]}, "earned does"),
        ({"evidence": [[3.0, 1.0], [np.nan, 2.0]]}, "finite numbers"),
        ({"evidence": [[3.0, 1.0], [np.inf, 2.0]]}, "finite numbers"),
        ({"evidence": [[3.0, 1.0], [-1.0, 2.0]]}, "negative evidence"),
        ({"graded": [0.5, -0.1]}, "graded successes that do not fit"),
        ({"graded": [1.1, 0.0]}, "graded successes that do not fit"),
        ({"graded": [0.5, 0.1]}, "graded successes that do not fit"),
        ({"last": [-1, 0]}, "steps 0 to 5"),
        ({"last": [6, 0]}, "steps 0 to 5"),
        ({"met": 3}, "first visits of 3"),
        ({"earned": [-1.0, 4.0]}, "first visits"),
        ({"earned": [5.0, 4.0]}, "first visits"),
        ({"earned": [1.0, np.inf]}, "earned does"),
        ({"earned": [np.nan, 4.0]}, "earned does"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(changed, text):
    with pytest.raises(StateError, match=text):
        loaded(state(**changed))


@pytest.mark.parametrize("name", state())
def test_a_missing_entry_is_named(name):
    given = state()
    del given[name]
    with pytest.raises(StateError, match="version None" if name == "version" else f"KeyError: '{name}'"):
        loaded(given)


@pytest.mark.parametrize("given", [None, [], {1: 2}])
def test_what_is_no_state_is_refused(given):
    with pytest.raises(StateError, match="state="):
        loaded(given)
