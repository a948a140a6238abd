"""Success from rewards: by the user's rule, or by a chosen rule whose choice is logged."""

import json
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.training.scoring import Scoring
from budgetalloc.training.success import Rule, rule_of_argument

NAMES = ["format", "accuracy", "length"]


def scores(*rows):
    return np.array(rows, dtype=float)


def learn(scoring, scores_RF, policy=None):
    """The success of a step with these scores, after which `scoring` has learned."""
    weights = np.array(scoring.weights)
    rewards_R = np.where(np.isnan(scores_RF).all(axis=1), np.nan, np.nansum(scores_RF * weights, axis=1))
    measure = scoring.measure(rewards_R, scores_RF)
    success_R = measure.success(rewards_R, scores_RF)
    scoring.learn(measure, rewards_R, scores_RF, Sums().plus(success_R, rewards_R), policy or ba.uniform())
    return success_R.tolist()


@pytest.mark.parametrize(
    ("success", "rule"),
    [("accuracy", Rule((1,))), (1, Rule((1,))), (np.int64(2), Rule((2,))), (1.5, Rule(threshold=1.5)), (None, None)],
)
def test_what_may_be_asked_for(success, rule):
    assert rule_of_argument(success, NAMES) == rule


@pytest.mark.parametrize(
    ("success", "message"),
    [
        ("acc", r"success='acc': the trainer has no reward function of this name: \['format', 'accuracy', 'length'\]"),
        (3, r"success=3: the trainer has 3 reward functions.*a float, such as 1.0"),
        (-1, r"success=-1"),
        (True, r"success=True: pass the name"),
        (float("nan"), r"success=nan"),
        ([1], r"success=\[1\]"),
        ([], r"success=\[\]: pass the name"),
    ],
)
def test_what_may_not(success, message):
    with pytest.raises(ba.InputError, match=message):
        rule_of_argument(success, NAMES)


def test_a_name_that_two_functions_share():
    with pytest.raises(ba.InputError, match=r"more than one.*its place in the list"):
        rule_of_argument("f", ["f", "f"])
    with pytest.raises(ba.InputError, match="has a name twice"):
        rule_of_argument(lambda rewards: rewards["f"], ["f", "f"])


def test_one_function_is_success_itself():
    assert learn(Scoring(["f"], [1.0]), scores([0], [1], [np.nan], [0.25])) == pytest.approx(
        [0, 1, np.nan, 0.25], nan_ok=True
    )
    assert learn(Scoring(["f"], [0.5]), scores([0], [1])) == [0.0, 1.0]  # whatever its weight
    assert learn(Scoring(["f"], [1.0]), scores(*[[-3], [3], [0]] * 6))[:3] == [0.0, 1.0, 0.5]
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


@pytest.mark.parametrize("returned", [[2.0, 0.0], [1.0], None, "x"])
def test_a_function_that_gives_no_success(returned):
    with pytest.raises(ba.InputError, match=r"success= returned .* return one number in \[0, 1\]"):
        learn(Scoring(NAMES, [1, 1, 1], lambda _: returned), np.zeros((2, 3)))


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
        assert learn(scoring, scores(*[[-3, 0.5], [2, 0.5]] * 8)) == [0.0, 1.0] * 8
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


NONE = np.nan


class TestFunctionsThatReturnNone:
    def test_one_that_returned_nothing_is_no_success(self, caplog):
        """It must not count as a function whose rewards are all 0 or 1."""
        scoring, rows = Scoring(["graded", "silent"], [1.0, 1.0]), scores(*[[x / 16, NONE] for x in range(16)])
        for _ in range(3):
            assert learn(scoring, rows) == [x / 16 for x in range(16)]
        assert scoring.rule == Rule()
        about, silent = [record.message for record in caplog.records]
        assert "No reward function of ['graded'] returns 0 and 1 only" in about
        assert "['silent'] returned None for all rollouts so far." in silent

    def test_nothing_scored_leaves_the_choice_open(self, caplog):
        scoring = Scoring(["graded", "right"], [1.0, 1.0])
        assert np.isnan(learn(scoring, scores([NONE, NONE]))).all()
        assert scoring.rule is None
        assert not caplog.records
        assert learn(scoring, scores([0.3, 0], [0.4, 1])) == [0.0, 1.0]
        assert scoring.rule == Rule((1,))

    def test_the_first_rewards_of_a_function_choose_again(self, caplog):
        scoring, rows = Scoring(["graded", "late"], [1.0, 2.0]), scores([0.25, NONE], [0.5, NONE])
        assert learn(scoring, rows) == [0.25, 0.5]
        learn(scoring, scores([0.25, 0.0], [0.75, NONE]))
        assert scoring.rule == Rule((1,))
        assert learn(scoring, scores([0.75, 0.0], [0.25, 1.0], [0.5, NONE])) == [0.0, 1.0, 0.5]
        assert [record.message for record in caplog.records if "about success, here late=1" in record.message]
        assert len(caplog.records) == 4  # the total, the silent one, the new choice, and where it returned None
        assert "late returned None for 1 of 3 rollouts that other functions scored." in caplog.text

    def test_the_choice_stays_if_the_late_one_weighs_less(self, caplog):
        scoring = Scoring(["right", "late"], [1.0, 0.5])
        learn(scoring, scores([0, NONE], [1, NONE]))
        learn(scoring, scores([0.5, NONE], [1, NONE]))  # graded by now
        learn(scoring, scores([0.5, 1], [1, 0]))
        assert scoring.rule == Rule((0,))
        assert len(caplog.records) == 2

    @pytest.mark.parametrize("weights", [[1.0, 1.0, 0.2], [1.0, 1.0, 1.0], [1.0, 0.5, 0.5]])
    def test_a_function_for_each_domain(self, weights):
        """Math is 0 or 1, code is graded, and the format is scored for both."""
        scoring, format_weight = Scoring(["math", "code", "format"], weights), weights[2]
        math, code = [[x % 2, NONE, 1] for x in range(8)], [[NONE, x / 8, x % 2] for x in range(8)]
        got = [learn(scoring, scores(*math, *code)) for _ in range(2)]
        assert scoring.rule == Rule((0, 2) if format_weight == 1 else (0,))
        top = scoring.total.range[1]
        code_R = [(weights[1] * x / 8 + format_weight * (x % 2)) / top for x in range(8)]
        assert got[0] == got[1] == pytest.approx([x % 2 for x in range(8)] + code_R)
        measure = scoring.measure(np.zeros(1), scores([0, 0, 0]))
        assert (measure.slope, measure.reward_range) == (None, None)

    def test_domains_with_verdicts_of_equal_weight(self):
        scoring = Scoring(["math", "code", "style"], [1.0, 1.0, 1.0])
        rows = scores([1, NONE, 0.3], [0, NONE, 0.4], [NONE, 1, 0.5], [NONE, 0, 0.5], [NONE, NONE, 0.5])
        assert learn(Scoring(["math", "code", "style"], [1.0, 1.0, 1.0]), rows)[:4] == [1, 0, 1, 0]
        assert learn(scoring, np.repeat(rows, 4, axis=0))[-1] == pytest.approx(0.1 / 1.1)  # totals from 0.4 to 1.5

    @pytest.mark.parametrize("success", ["math", 0])
    def test_where_the_function_asked_for_returned_none(self, success):
        scoring = Scoring(["math", "code"], [1.0, 1.0], success)
        assert learn(scoring, scores([1, NONE], [NONE, 0.25], [0, 0.25])) == [1, 0.25, 0]

    def test_the_total_beside_verdicts_is_clipped_and_counted(self, caplog):
        scoring = Scoring(["math", "code"], [1.0, 1.0])
        rows = scores(*[[x % 2, NONE] for x in range(32)], *[[NONE, x] for x in range(9)] * 3, [NONE, -100.0])
        for _ in range(2):
            measure = scoring.measure(np.nansum(rows, axis=1), rows)
            assert measure.total_range == (0.0, 8.0)
            assert measure.count_clipped(np.nansum(rows, axis=1), rows) == 1
            assert learn(scoring, rows)[-3:] == [7 / 8, 1.0, 0.0]
        assert sum("A reward of -100 lies far outside" in record.message for record in caplog.records) == 1

    @given(
        st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.5, -2.0, NONE]), min_size=3, max_size=3), min_size=1),
        st.lists(st.sampled_from([0.5, 1.0]), min_size=3, max_size=3),
    )
    def test_every_rollout_with_a_reward_has_a_success(self, rows, weights):
        scoring, scores_RF = Scoring(NAMES, weights, quiet=True), scores(*rows)
        for _ in range(3):
            success_R = np.array(learn(scoring, scores_RF))
            assert (np.isnan(success_R) == np.isnan(scores_RF).all(axis=1)).all()
            assert not ((success_R < 0) | (success_R > 1)).any()


def test_a_range_given_is_that_of_the_total():
    rows = scores([0, 0.5], [1, 0.5])
    assert learn(Scoring(["right", "style"], [2.0, 1.0], reward_range=(0.0, 4.0)), rows) == [0.0, 1.0]
    assert learn(Scoring(["right", "style"], [0.0, 1.0], reward_range=(0.0, 4.0)), rows) == [0.125, 0.125]


class TestState:
    def pair(self, first, second):
        """A scoring after two steps with `first`'s arguments, and one with `second`'s that takes its state."""
        scoring, other = Scoring(NAMES, [0.2, 1.0, 0.5], **first), Scoring(NAMES, [0.2, 1.0, 0.5], **second)
        learn(scoring, scores([1, 0, -0.3], [0, 1, 0.2]))
        learn(scoring, scores([1, 0, -5], [0, 1, 9]))
        return scoring, other, json.loads(json.dumps(scoring.state_dict()))

    @pytest.mark.parametrize("success", [None, "length", 0.5, lambda rewards: rewards["accuracy"]])
    def test_to_the_bit(self, success):
        options = {"success": success}
        scoring, other, state = self.pair(options, options)
        other.load_state_dict(state, ba.BetaEstimator())
        assert other.state_dict() == scoring.state_dict()
        again = scores([1, 0, 3], [0, 1, 0.2])
        assert learn(other, again) == learn(scoring, again)

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

    def test_of_functions_that_return_none(self):
        rows = scores(*[[x % 2, NONE] for x in range(16)], *[[NONE, x] for x in range(16)])
        scoring, other = (Scoring(["math", "code"], [1.0, 1.0]) for _ in range(2))
        learn(scoring, rows)
        state = json.loads(json.dumps(scoring.state_dict()))
        other.load_state_dict(state, ba.BetaEstimator())
        assert learn(other, rows) == learn(scoring, rows)
        assert other.state_dict() == scoring.state_dict()
        assert other.rule == Rule((0,))

    def test_of_the_total(self):
        spread = np.linspace(-3, 3, 32)[:, None] * [1, 1]
        scoring, other = (Scoring(["model", "length"], [1.0, 1.0]) for _ in range(2))
        learn(scoring, spread)
        other.load_state_dict(scoring.state_dict(), None)
        assert other.total.range == (-6.0, 6.0)
        assert learn(other, spread[:1]) == [0.0]

    @pytest.mark.parametrize(
        ("names", "weights", "success", "high"),
        [
            (["model", "length"], [2.0, 1.0], None, 9.0),
            (["length", "model"], [1.0, 2.0], None, 9.0),
            (["model", "length", "logged"], [4.0, 2.0, 0.0], None, 18.0),  # twice the total
            (["model", "length"], [1.0, 1.0], None, None),
            (["model", "length"], [-2.0, -1.0], None, None),
            (["model", "length", "style"], [2.0, 1.0, 1.0], None, None),
            (["model", "length"], [2.0, 1.0], 0.5, 1.0),
            (["model", "length"], [4.0, 2.0], 0.5, None),
        ],
    )
    def test_of_a_total_with_other_weights(self, names, weights, success, high):
        """Beliefs are rescaled if the total is multiplied by a positive number, and refused if it is another total."""
        scoring, other = Scoring(["model", "length"], [2.0, 1.0], success), Scoring(names, weights, success)
        learn(scoring, np.linspace(-3, 3, 32)[:, None] * [1, 1])
        if high is None:
            with pytest.raises(ba.StateError, match=r"with the weights {'model': 2.0, 'length': 1.0}.*cold beliefs"):
                other.load_state_dict(scoring.state_dict(), ba.uniform())
            assert other.sums == Sums()
        else:
            other.load_state_dict(scoring.state_dict(), ba.uniform())
            assert success or other.total.range == pytest.approx((-high, high))
            assert (other.sums == scoring.sums) == (high < 18)  # the sums are about the same total

    @pytest.mark.parametrize(
        "change",
        [
            {"rule": 5},
            {"names": None},
            {"sums": {}},
            {"rollouts": "x"},
            {"range": 3},
            {"only_01": [1]},
            {"scored": 1},
            {"weights": 1},
        ],
    )
    def test_a_damaged_state(self, change):
        _, other, state = self.pair({}, {})
        for damaged in ({**state, **change}, {key: state[key] for key in state.keys() - change.keys()}):
            with pytest.raises(ba.StateError):
                other.load_state_dict(damaged, ba.BetaEstimator())


@pytest.mark.parametrize("outlier", [-1.0, -5.0, -10.0, -100.0, -1000.0, 1000.0])
@pytest.mark.parametrize("others", [0.0, None])
def test_an_outlier_in_the_first_step_does_not_matter_later(outlier, others):
    """One outlier among failures, or among other rewards, and rewards of 0 and 1 afterwards."""
    assert abs(beliefs_after(outlier, others) - beliefs_after(None, others)).max() < 0.05


def beliefs_after(outlier, others):
    """Believed rates of 40 prompts after 20 steps of 64 rollouts."""
    policy, scoring, rng = ba.adaptive(), Scoring(["f"], [1.0], quiet=True), np.random.default_rng(0)
    for step in range(20):
        ids_R = rng.permutation(np.repeat(np.arange(40), 2))[:64]
        rewards_R = (rng.random(64) < np.linspace(0.05, 0.95, 40)[ids_R]).astype(float)
        if step == 0 and others is not None:
            rewards_R[:] = others
        if step == 0 and outlier is not None:
            rewards_R[0] = outlier
        measure = scoring.measure(rewards_R, rewards_R[:, None])
        success_R = measure.success(rewards_R, rewards_R[:, None])
        policy.observe(ids_R.tolist(), rewards_R, success_R)
        scoring.learn(measure, rewards_R, rewards_R[:, None], Sums().plus(success_R, rewards_R), policy)
    return policy.belief(list(range(40))).mean


def test_beliefs_follow_a_range_that_grows():
    policy, scoring = ba.uniform(prior=(0.5, 0.5)), Scoring(["f"], [1.0])
    first = scores([0], [1])
    policy.observe(["a", "b"], learn(scoring, first, policy))
    learn(scoring, scores([3]), policy)  # from (0, 1) to (0, 3): "b" earned a third of what can be earned
    belief = policy.belief(["a", "b"])
    np.testing.assert_allclose(belief.alpha_P - 0.5, [0, 1 / 3])
    np.testing.assert_allclose(belief.beta_P - 0.5, [1, 2 / 3])
