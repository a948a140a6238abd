"""Repeated completions: a deterministic function never disagrees with itself, a noisy one is measured."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.training.judges import disagreement
from budgetalloc.training.judges.disagreement import Disagreement


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20), max_size=10))
def test_a_function_of_prompt_and_completion_never_differs(steps):
    seen, met, repeats = Disagreement(2), set(), 0
    for step in steps:
        scores_RF = np.array([[name / 3 + key, np.nan if key else name] for name, key in step]).reshape(-1, 2)
        seen.add([name for name, _ in step], [key for _, key in step], scores_RF)
        for pair in step:
            repeats += pair in met
            met.add(pair)
    assert seen.repeats_F[0] == repeats
    assert (np.nan_to_num(seen.share_F) == 0).all()
    assert (np.nan_to_num(seen.difference_F) == 0).all()


def test_the_share_and_the_size_of_a_difference_are_exact():
    seen = Disagreement(1)
    seen.add(["a", "a", "a", "b"], [1, 1, 1, 1], np.array([[0.0], [0.5], [0.5], [1.0]]))
    seen.add(["a", "b"], [1, 2], np.array([[0.25], [0.0]]))  # another completion of b
    assert seen.repeats_F.tolist() == [3]
    assert seen.share_F == pytest.approx([2 / 3])
    assert seen.difference_F == pytest.approx([0.75 / 3])


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(disagreement, "_REMEMBERED", 3)
    seen = Disagreement(1)
    seen.add(list("abcd"), [0] * 4, np.zeros((4, 1)))
    seen.add(["a", "d"], [0, 0], np.ones((2, 1)))  # a is forgotten
    assert seen.repeats_F.tolist() == [1]


def test_repetitions_within_one_step_count_one_after_another():
    seen = Disagreement(2)
    seen.add(["a"] * 4, ["4"] * 4, np.array([[1.0, 0.0], [0.5, 0.0], [0.5, np.nan], [1.0, 0.0]]))
    assert seen.repeats_F.tolist() == [3, 1]
    assert (seen.share_F * seen.repeats_F).tolist() == [2, 0]
    assert seen.difference_F[0] == pytest.approx(1 / 3)
