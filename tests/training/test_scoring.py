"""Success is told from rewards as the user says, or by a rule that is never silently wrong."""

import json
from typing import ClassVar

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.success import Rule, asked_for

NAMES = ["format", "accuracy", "length"]


def scores(*rows):
    return np.array(rows, dtype=float)


def learn(scoring, scores_RF, policy=None):
    """One step in which these were the scores; its success."""
    weights = np.array(scoring.weights)
    rewards_R = np.where(np.isnan(scores_RF).all(axis=1), np.nan, np.nansum(scores_RF * weights, axis=1))
    measure = scoring.measure(rewards_R, scores_RF)
    success_R = measure.success(rewards_R, scores_RF)
    scoring.learn(measure, rewards_R, scores_RF, success_R, policy or ba.uniform())
    return success_R.tolist()


@pytest.mark.parametrize(
    ("success", "rule"),
    [("accuracy", Rule((1,))), (1, Rule((1,))), (np.int64(2), Rule((2,))), (1.5, Rule(threshold=1.5)), (None, None)],
)
def test_what_may_be_asked_for(success, rule):
    assert asked_for(success, NAMES) == rule


@pytest.mark.parametrize(
    ("success", "message"),
    [
        ("acc", r"success='acc': the trainer has no reward function of this name: \['format', 'accuracy', 'length'\]"),
        (3, r"success=3: the trainer has 3 reward functions.*a float, such as 1.0"),
        (-1, r"success=-1"),
        (True, r"success=True: pass the name"),
        (float("nan"), r"success=nan"),
        ([1], r"success=\[1\]"),
    ],
)
def test_what_may_not(success, message):
    with pytest.raises(ba.InputError, match=message):
        asked_for(success, NAMES)


def test_a_name_that_two_functions_share():
    with pytest.raises(ba.InputError, match=r"more than one.*its place in the list"):
        asked_for("f", ["f", "f"])
    with pytest.raises(ba.InputError, match="has a name twice"):
        asked_for(lambda rewards: rewards["f"], ["f", "f"])


def test_one_function_is_success_itself():
    assert learn(Scoring(["f"], [1.0]), scores([0], [1], [np.nan], [0.25])) == pytest.approx(
        [0, 1, np.nan, 0.25], nan_ok=True
    )
    assert learn(Scoring(["f"], [0.5]), scores([0], [1])) == [0.0, 1.0]  # whatever its weight
    assert learn(Scoring(["f"], [1.0]), scores([-3], [3], [0])) == [0.0, 1.0, 0.5]
    assert learn(Scoring(["f"], [1.0], reward_range=(0, 4)), scores([1], [5])) == [0.25, 1.0]


def test_a_threshold_and_a_function():
    rows = scores([1, 0, 0.25], [1, 1, 0.25], [np.nan] * 3)
    assert learn(Scoring(NAMES, [1, 1, 1], 2.25), rows) == pytest.approx([0, 1, np.nan], nan_ok=True)
    seen = []

    def judge(rewards):
        seen.append(rewards)
        return rewards["accuracy"] * (rewards["length"] < 0.5)

    assert learn(Scoring(NAMES, [1, 1, 1], judge), rows[:2]) == [0.0, 1.0]
    assert set(seen[0]) == set(NAMES)
    assert len(seen) == 1  # it may be slow


@pytest.mark.parametrize("given", [[2.0, 0.0], [1.0], None, "x"])
def test_a_function_that_gives_no_success(given):
    with pytest.raises(ba.InputError, match=r"success= returned .* return one number in \[0, 1\]"):
        learn(Scoring(NAMES, [1, 1, 1], lambda _: given), np.zeros((2, 3)))


class TestOfSeveral:
    weights: ClassVar = [0.2, 1.0, 0.5]

    def test_the_binary_one_of_the_largest_weight(self, caplog):
        scoring = Scoring(NAMES, self.weights)
        assert learn(scoring, scores([1, 0, -0.3], [0, 1, 0.2])) == [0.0, 1.0]
        assert learn(scoring, scores([1, 0, -0.3], [1, 1, 0.2])) == [0.0, 1.0]
        (said,) = [record.message for record in caplog.records]
        assert "The beliefs are about success, here accuracy=1" in said

    def test_all_of_the_largest_weight(self, caplog):
        assert learn(Scoring(NAMES[:2], [1.0, 1.0]), scores([1, 0], [1, 1], [0, 1], [np.nan, 1])) == [0, 1, 0, 1]
        assert "format=1 and accuracy=1" in caplog.text

    def test_none_is_binary(self, caplog):
        scoring = Scoring(["length", "model"], [1.0, 1.0])
        assert learn(scoring, scores([-3, 0.5], [2, 0.5])) == [0.0, 1.0]
        assert learn(scoring, scores([-3, 0.5], [2, 0.5])) == [0.0, 1.0]
        (said,) = [record.message for record in caplog.records]
        assert "Pass success=" in said
        assert "['length', 'model']" in said

    def test_no_weight_and_negative_weights_are_no_success(self):
        assert learn(Scoring(NAMES, [-1.0, 1.0, 0.0]), scores([1, 0, 1], [1, 1, 1])) == [0.0, 1.0]

    def test_one_that_turns_out_to_be_a_penalty(self, caplog):
        """A penalty for length is 0 until somebody writes too much."""
        scoring = Scoring(["accuracy", "overlong"], [1.0, 1.0])
        assert learn(scoring, scores([1, 0], [0, 0])) == [0.0, 0.0]
        assert learn(scoring, scores([1, -1], [1, 0])) == [0.0, 0.0]
        assert "['overlong'], used as success so far, returned rewards outside [0, 1]" in caplog.text
        assert learn(scoring, scores([1, -1], [0, 0])) == [1.0, 0.0]

    def test_one_that_never_gives_1_is_said(self, caplog):
        scoring = Scoring(["accuracy", "overlong"], [1.0, 1.0])
        for _ in range(5):
            learn(scoring, np.tile(scores([1, 0], [0, 0]), (150, 1)))
        said = [record.message for record in caplog.records if "no rollout counts as a success" in record.message]
        assert len(said) == 1
        assert "['overlong'] returned 0 for all of the first 1200 rollouts" in said[0]

    def test_graded_ones_that_were_binary_at_first_stay(self):
        scoring = Scoring(["accuracy", "style"], [1.0, 0.1])
        learn(scoring, scores([0, 0.3], [0, 0.1]))
        assert learn(scoring, scores([0.5, 0.3], [1, 0.1])) == [0.5, 1.0]

    def test_quiet(self, caplog):
        learn(Scoring(NAMES, self.weights, quiet=True), scores([1, 0, -0.3]))
        assert not caplog.records


class TestState:
    def pair(self, first, second):
        """A scoring after two steps with `first`'s arguments, and one with `second`'s that takes its state."""
        scoring, other = Scoring(NAMES, [0.2, 1.0, 0.5], **first), Scoring(NAMES, [0.2, 1.0, 0.5], **second)
        learn(scoring, scores([1, 0, -0.3], [0, 1, 0.2]))
        learn(scoring, scores([1, 0, -5], [0, 1, 9]))
        return scoring, other, json.loads(json.dumps(scoring.state_dict()))

    @pytest.mark.parametrize("options", [{}, {"success": "length"}, {"success": 0.5}, {"success": len}])
    def test_to_the_bit(self, options):
        if options.get("success") is len:
            options = {"success": lambda rewards: rewards["accuracy"]}
        scoring, other, state = self.pair(options, options)
        other.load_state_dict(state, ba.BetaEstimator())
        assert other.state_dict() == scoring.state_dict()
        again = scores([1, 0, 3], [0, 1, 0.2])
        assert learn(other, again) == learn(scoring, again)

    def test_nothing_saved(self):
        Scoring(NAMES, [1, 1, 1]).load_state_dict({}, ba.BetaEstimator())

    @pytest.mark.parametrize(
        ("first", "second", "message"),
        [
            ({}, {"success": "format"}, r"about accuracy=1, this trainer's about format=1. Pass success="),
            (
                {"success": 0.5},
                {"success": 0.75},
                r"at least 0.5, this trainer's about a .* at least 0.75",
            ),
            ({"success": lambda rewards: rewards["format"]}, {}, r"<lambda>\(\) returns.*Pass success= as in the run"),
        ],
    )
    def test_another_success(self, first, second, message):
        _, other, state = self.pair(first, second)
        before = other.state_dict()
        with pytest.raises(ba.StateError, match=message):
            other.load_state_dict(state, ba.BetaEstimator())
        assert other.state_dict() == before

    def test_left_out_goes_on_with_what_was_saved(self):
        _, other, state = self.pair({"success": "format"}, {})
        other.load_state_dict(state, ba.BetaEstimator())
        assert learn(other, scores([1, 0, 0], [0, 1, 0])) == [1.0, 0.0]

    @pytest.mark.parametrize("change", [{"rule": 5}, {"names": None}, {"sums": {}}, {"rollouts": "x"}, {"range": 3}])
    def test_a_damaged_state(self, change):
        _, other, state = self.pair({}, {})
        with pytest.raises(ba.StateError):
            other.load_state_dict({**state, **change}, ba.BetaEstimator())


def test_beliefs_follow_a_range_that_grows():
    policy, scoring = ba.uniform(prior=(0.5, 0.5)), Scoring(["f"], [1.0])
    first = scores([0], [1])
    policy.observe(["a", "b"], learn(scoring, first, policy))
    learn(scoring, scores([3]), policy)  # from (0, 1) to (0, 3): "b" earned a third of what can be earned
    belief = policy.belief(["a", "b"])
    np.testing.assert_allclose(belief.alpha_P - 0.5, [0, 1 / 3])
    np.testing.assert_allclose(belief.beta_P - 0.5, [1, 2 / 3])
