"""Success and the rise of the reward with it, by a rule and ranges that are fixed for the step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.success import Rule
from budgetalloc.training.success_measure import Measure

NAMES = ["format", "accuracy", "length"]
NONE = np.nan


def scores(*rows):
    return np.array(rows, dtype=float)


class TestJump:
    """What the total reward rises by with success, before anything is known of it."""

    def jump(self, scoring, *steps):
        for scores_RF in steps:
            rewards_R = np.nansum(scores_RF * np.array(scoring.weights), axis=1)
            measure = scoring.measure(rewards_R, scores_RF)
            success_R = measure.success(rewards_R, scores_RF)
            scoring.learn(measure, rewards_R, scores_RF, Sums().plus(success_R, rewards_R), ba.uniform())
        return measure.jump

    def test_the_weights_of_the_functions(self):
        rows = scores([1, 0, 0.3], [1, 0, 0.4])
        assert self.jump(Scoring(NAMES, [0.2, 1.0, 0.5]), rows) == 1.0
        assert self.jump(Scoring(NAMES, [0.2, 0.2, 0.5]), rows) == pytest.approx(0.4)
        assert self.jump(Scoring(NAMES, [0.2, 3.0, 0.5], success="accuracy"), rows) == 3.0
        assert self.jump(Scoring(["f"], [0.5]), scores([0], [0])) == 0.5

    def test_the_width_of_the_range(self):
        spread = np.linspace(-2, 6, 64)[:, None]
        assert self.jump(Scoring(["f"], [0.5]), spread) == 4.0
        assert self.jump(Scoring(["f"], [0.5], reward_range=(-1.0, 3.0)), spread) == 4.0
        two = np.hstack([spread, spread])
        assert self.jump(Scoring(NAMES[:2], [1.0, 0.5]), two) == pytest.approx(12)  # the total
        assert self.jump(Scoring(NAMES[:2], [1.0, 0.5], success="format"), two) == 8.0  # of a graded function
        for success in (1.5, lambda rewards: rewards["format"] > 1, "accuracy"):
            scoring = Scoring(NAMES[:2], [0.5, 0.0], success=success)  # accuracy has no weight
            assert self.jump(scoring, two) == 4.0
            assert self.jump(scoring, two, two * 0) == 4.0  # learned before

    def test_nothing_known(self):
        assert Measure(Rule(threshold=1.0), (0.0, 1.0), ("f",)).jump == 1.0
        assert self.jump(Scoring(NAMES, [1, 1, 1], 1.5), np.zeros((4, 3))) == 1.0

    @given(
        st.lists(st.lists(st.sampled_from([0.0, 1.0, -1.0, 5.0, np.nan]), min_size=3, max_size=3), min_size=1),
        st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0]), min_size=3, max_size=3),
        st.sampled_from([None, "accuracy", 0.5]),
    )
    def test_it_is_positive(self, rows, weights, success):
        assert self.jump(Scoring(NAMES, weights, success, quiet=True), scores(*rows)) > 0


@pytest.mark.parametrize(
    ("functions", "partial", "expected"),
    [
        ((0,), (0, 1), [False, True, True]),  # math; code and its format are not math
        ((0, 2), (0, 1), [False, True, False]),  # code scored the second, and nobody instead of math the third
        ((0, 2), (0,), [False, False, False]),
        ((0, 1), (0, 1), [False, False, True]),
        ((), (0, 1), [False, False, False]),
    ],
)
def test_whose_success_is_the_total(functions, partial, expected):
    scores_RF = scores([1, NONE, 1], [NONE, 0.5, 1], [NONE, NONE, 1])
    measure = Measure(Rule(functions), (0, 1), ("math", "code", "format"), total_range=(0, 2), partial=partial)
    assert measure.by_total(np.nansum(scores_RF, axis=1), scores_RF).tolist() == expected
    success_R = measure.success(np.array([2.0, 1.5, 1.0]), scores_RF)
    assert success_R[np.array(expected)] == pytest.approx(np.array([1.0, 0.75, 0.5])[np.array(expected)])


def test_a_function_without_weight_gives_no_total():
    measure = Measure(Rule((0,)), (0, 1), ("math", "length"), weights=(1.0, 0.0), total_range=(0, 1), partial=(0,))
    assert np.isnan(measure.success(np.array([0.0]), scores([NONE, 17]))).all()
