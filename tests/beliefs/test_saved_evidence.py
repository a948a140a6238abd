"""The evidence of a saved state: what fits is read, and each entry that does not fit is refused."""

import numpy as np
import pytest

from budgetalloc.beliefs.saved_evidence import read_evidence
from budgetalloc.errors import StateError

START = (0.3, 0.7)


def state(**changed):
    """Two prompts at step 5, the first of which was graded and has ended its first visit."""
    kept = {"version": 2, "step": 5, "ids": ["a", 1], "earned": [1.5, 4.0], "met": 1}
    kept |= {"evidence": np.array([[3.0, 1.0], [0.0, 2.0]]), "graded": np.array([0.5, 0.0]), "last": np.array([5, 0])}
    return kept | changed


def test_every_entry_is_read():
    saved = read_evidence(state(), 2, START)
    assert (saved["ids"], saved["step"], saved["met"]) == (["a", 1], 5, 1)
    assert (saved["earned"], saved["prior"]) == ((1.5, 4.0), START)
    assert (saved["evidence"].tolist(), saved["graded"].tolist()) == ([[3, 1], [0, 2]], [0.5, 0])
    assert (saved["last"].tolist(), saved["last"].dtype) == ([5, 0], np.int64)
    assert read_evidence(state(prior=[1.0, 2.0]), 2, START)["prior"] == (1.0, 2.0)


def test_what_is_read_is_a_copy():
    given = state()
    saved = read_evidence(given, 2, START)
    for name in ("evidence", "graded", "last"):
        given[name] += 9
    assert {name: saved[name].tolist() for name in ("evidence", "graded", "last")} == {
        "evidence": [[3, 1], [0, 2]],
        "graded": [0.5, 0],
        "last": [5, 0],
    }


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
        {"prior": [1e-9, 1e9]},
        {"version": np.array(2), "step": np.array(5), "met": np.array(1)},  # as an .npz file may hold them
    ],
)
def test_the_ends_of_every_range_are_allowed(changed):
    read_evidence(state(**changed), 2, START)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"version": 1}, "version 1, this budgetalloc reads version 2"),
        ({"version": 3}, "version 3, this budgetalloc reads version 2"),
        ({"version": 2.0}, "version 2.0"),
        ({"version": np.array([2])}, "version"),
        ({"ids": ["a", "a"]}, "2 ids .1 distinct."),
        ({"ids": ["a"]}, "1 ids"),
        ({"ids": ["a", None]}, "does not hold ids"),
        ({"evidence": np.ones((3, 2))}, "evidence for 3"),
        ({"evidence": np.ones(3)}, "does not hold ids, evidence"),
        ({"evidence": "text"}, "does not hold ids, evidence"),
        ({"step": "soon"}, "step='soon'"),
        ({"last": [5]}, "visits for 1 prompts"),
        ({"graded": [0.5]}, "it is damaged"),
        ({"last": [0.5, 1.0]}, "last=.0.5, 1.0."),
        ({"step": -1}, "does not hold ids, evidence, visits and a step"),
        ({"met": -1}, "does not hold ids, evidence, visits and a step"),
        ({"earned": [1.0]}, "does not hold ids"),
        ({"evidence": [[3.0, 1.0], [np.nan, 2.0]]}, "negative or not finite"),
        ({"evidence": [[3.0, 1.0], [np.inf, 2.0]]}, "negative or not finite"),
        ({"evidence": [[3.0, 1.0], [-1.0, 2.0]]}, "negative or not finite"),
        ({"graded": [0.5, -0.1]}, "graded successes do not fit"),
        ({"graded": [1.1, 0.0]}, "graded successes do not fit"),
        ({"graded": [0.5, 0.1]}, "graded successes do not fit"),
        ({"prior": [0.0, 1.0]}, "not two positive numbers"),
        ({"prior": [-1.0, 1.0]}, "not two positive numbers"),
        ({"prior": [1.0, np.inf]}, "not two positive numbers"),
        ({"prior": [1.0]}, "does not hold ids"),
        ({"last": [-1, 0]}, "steps 0 to 5"),
        ({"last": [6, 0]}, "steps 0 to 5"),
        ({"met": 3}, "of 3 prompts, are out of range"),
        ({"earned": [-1.0, 4.0]}, "first visits"),
        ({"earned": [5.0, 4.0]}, "first visits"),
        ({"earned": [1.0, np.inf]}, "first visits"),
        ({"earned": [np.nan, 4.0]}, "first visits"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(changed, text):
    with pytest.raises(StateError, match=text):
        read_evidence(state(**changed), 2, START)


@pytest.mark.parametrize("name", state())
def test_a_missing_entry_is_named(name):
    given = state()
    del given[name]
    with pytest.raises(StateError, match=f"lacks .'{name}'.: it was not written by"):
        read_evidence(given, 2, START)


@pytest.mark.parametrize("given", [None, [], {1: 2}])
def test_what_is_no_state_is_refused(given):
    with pytest.raises(StateError, match="state="):
        read_evidence(given, 2, START)
