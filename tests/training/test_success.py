"""Success from rewards: the user's rule, or one that is chosen once and said."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.beliefs.rewards import WAIT
from budgetalloc.training.success import Rule, Scoring

NAMES, NONE = ["format", "accuracy", "length"], np.nan


def scores(*rows):
    return np.array(rows, dtype=float)


def learn(scoring, scores_RF):
    """The success of a step with these scores, after which `scoring` has learned."""
    rewards_R = scoring.total_rewards(scores_RF)
    measure = scoring.measure(rewards_R, scores_RF)
    success_R = measure.success(rewards_R, scores_RF)
    scoring.learn(measure, rewards_R, scores_RF, Sums.of(success_R, rewards_R))
    return success_R.tolist()


@pytest.mark.parametrize(
    ("success", "rule"),
    [("accuracy", Rule((1,))), (1, Rule((1,))), (np.int64(2), Rule((2,))), (1.5, Rule(threshold=1.5)), (None, None)],
)
def test_what_may_be_asked_for(success, rule):
    assert Rule.of(success, NAMES) == rule


@pytest.mark.parametrize(
    ("success", "message"),
    [
        (
            "acc",
            r"success='acc': the trainer has no reward function of this name, did you mean accuracy\? It has",
        ),
        (3, r"success=3: the trainer has 3 reward functions.*a float, such as 1.0"),
        (-1, r"success=-1"),
        (True, r"success=True: pass the name"),
        (float("nan"), r"success=nan"),
        ([1], r"success=\[1\]"),
    ],
)
def test_what_may_not(success, message):
    with pytest.raises(ba.InputError, match=message) as refused:
        Rule.of(success, NAMES)
    assert refused.value.argument == "success"


def test_a_name_that_two_functions_share():
    with pytest.raises(ba.InputError, match=r"more than one.*its place in the list"):
        Rule.of("f", ["f", "f"])
    with pytest.raises(ba.InputError, match="has a name twice"):
        Rule.of(lambda rewards: rewards["f"], ["f", "f"])


def test_one_function_is_success_itself():
    assert learn(Scoring(["f"], [1.0]), scores([0], [1], [NONE], [0.25])) == pytest.approx(
        [0, 1, NONE, 0.25], nan_ok=True
    )
    assert learn(Scoring(["f"], [0.5]), scores([0], [1])) == [0.0, 1.0]  # whatever its weight
    assert learn(Scoring(["f"], [1.0]), scores(*[[-3], [3], [0]] * 6))[:3] == [0.0, 1.0, 0.5]
    assert learn(Scoring(["f"], [1.0], reward_range=(0, 4)), scores([1], [5])) == [0.25, 1.0]
    assert learn(Scoring(["f", "logged"], [1.0, 0.0]), scores([1, 0], [0, 1])) == [
        1.0,
        0.0,
    ]  # the only one in the total


def test_totals_with_a_part_that_no_function_gave_have_no_range_of_their_own():
    """As with a penalty that the trainer subtracts: the reward is learned as a line in success."""
    scoring, scores_RF = Scoring(["f"], [2.0]), scores([0], [1])
    assert scoring.measure(np.array([0.0, 2.0]), scores_RF).reward_range == (0.0, 2.0)
    assert scoring.measure(np.array([-0.5, 1.5]), scores_RF).reward_range is None


def test_a_threshold_and_a_function():
    rows = scores([1, 0, 0.25], [1, 1, 0.25], [NONE] * 3)
    assert learn(Scoring(NAMES, [1, 1, 1], 2.25), rows) == pytest.approx([0, 1, NONE], nan_ok=True)
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


CHOICES = {
    "the largest weight": ([0.2, 1.0, 0.5], [[1, 0, -0.3], [0, 1, 0.2]], (1,)),
    "all of the largest weight": ([1.0, 1.0, 0.0], [[1, 0, 0], [1, 1, 0], [0, 1, 0]], (0, 1)),
    "a format that is always right does not qualify": ([1.0, 1.0, 0.5], [[1, 0, 0], [1, 1, 0]], (1,)),
    "a graded one that gave 0 and 1": ([0.5, 1.0, 0.0], [[1, 0, 0], [0, 1, 0], [1, 0.5, 0]], (1,)),
    "negative weights never": ([-1.0, 1.0, 0.0], [[0, 0, 0], [1, 1, 0]], (1,)),
    "nothing in [0, 1]": ([1.0, 1.0, 1.0], [[-3, 2, 5], [2, 7, 9]], ()),
}


@pytest.mark.parametrize("case", CHOICES)
def test_of_several_it_is_chosen_from_the_first_rewards(caplog, case):
    weights, rows, functions = CHOICES[case]
    scoring = Scoring(NAMES, weights)
    got = learn(scoring, scores(*rows))
    assert scoring.rule == Rule(functions)
    (said,) = [record.message for record in caplog.records]
    assert "success=" in said
    for name in (NAMES[f] for f in functions):
        assert name in said.partition(":")[0]
    for f, name in enumerate(NAMES):  # the alternatives, those without weight among them
        assert f in functions or f"{name!r} (weight {weights[f]:g})" in said
    if functions:
        assert got == [min(row[f] for f in functions) for row in rows]
    learn(scoring, scores([0.3, 0.3, 0.3]))
    assert scoring.rule == Rule(functions)  # fixed
    assert len(caplog.records) == 1


class TestWaiting:
    def test_for_a_function_of_more_weight_that_only_failed(self):
        scoring = Scoring(["format", "accuracy"], [0.5, 1.0], quiet=True)
        assert np.isnan(learn(scoring, scores([1, 0], [0, 0]))).all()
        assert scoring.rule is None
        assert learn(scoring, scores([1, 0], [0, 1])) == [0.0, 1.0]
        assert scoring.rule == Rule((1,))

    @pytest.mark.parametrize(
        ("rows", "functions"),
        [([[1, 0], [0, 0]], (0,)), ([[1, 0.3], [1, 0.4]], ())],  # a rare success, or none that can say it
    )
    def test_ten_steps_at_most(self, rows, functions):
        scoring = Scoring(["format", "accuracy"], [0.5, 1.0], quiet=True)
        for _ in range(WAIT):
            assert np.isnan(learn(scoring, scores(*rows))).all()
        assert not np.isnan(learn(scoring, scores(*rows))).any()
        assert scoring.rule == Rule(functions)

    def test_gives_no_evidence_and_uniform_groups(self):
        session = ba.Session("adaptive", ["format", "score"], [1.0, 1.0], pool=range(8), quiet=True)
        for _ in range(3):
            session.begin([], 8, 4)
            ids_R = session.request()
            assert sorted(np.unique(ids_R, return_counts=True)[1].tolist()) == [4, 4]
            session.observe(ids_R, [[1.0, x / 16] for x in range(1, 9)], [1] * 8)
            batch = session.end().batch
            advantages_R = session.options.advantages(batch).values_R
            assert batch.uniform
            np.testing.assert_allclose([advantages_R[batch.group_R == g].sum() for g in (0, 1)], 0, atol=1e-9)
        assert session.policy.state_dict()["evidence"].sum() == 0
        assert session.policy.estimator.step == 3

    def test_uniform_never_waits(self):
        session = ba.Session("uniform", ["format", "score"], [1.0, 1.0], quiet=True)
        assert not session.uniform


def test_uniform_ignores_the_range_of_the_user(caplog):
    session = ba.Session("uniform", ["reward"], reward_range=(0.0, 0.5), metrics="all")
    session.begin(["a"], 4, 4)
    session.observe(session.request(), [0.0, 1.0, 1.0, 1.0], [1] * 4)
    assert session.end().metrics["rewards_clipped"] == 0
    assert not caplog.records


class TestFunctionsThatReturnNone:
    def test_nothing_scored_leaves_the_choice_open(self, caplog):
        scoring = Scoring(["graded", "right"], [1.0, 1.0])
        assert np.isnan(learn(scoring, scores([NONE, NONE]))).all()
        assert not caplog.records
        assert learn(scoring, scores([0.3, 0], [0.4, 1])) == [0.0, 1.0]

    @pytest.mark.parametrize("weights", [[1.0, 1.0, 0.2], [1.0, 1.0, 1.0], [1.0, 0.5, 0.5]])
    def test_a_function_for_each_domain(self, weights):
        """Math is 0 or 1, code is graded and never 0, and the format is scored for both."""
        scoring, format_weight = Scoring(["math", "code", "format"], weights, quiet=True), weights[2]
        math, code = [[x % 2, NONE, x % 2] for x in range(8)], [[NONE, (x + 1) / 9, x % 2] for x in range(8)]
        got = [learn(scoring, scores(*math, *code)) for _ in range(2)]
        assert scoring.rule == Rule((0, 2) if format_weight == 1 else (0,))
        top = scoring.total.range[1]
        code_R = [(weights[1] * (x + 1) / 9 + format_weight * (x % 2)) / top for x in range(8)]
        assert got[0] == got[1] == pytest.approx([x % 2 for x in range(8)] + code_R)

    @pytest.mark.parametrize("success", ["math", 0])
    def test_where_the_function_asked_for_returned_none(self, success):
        scoring = Scoring(["math", "code"], [1.0, 1.0], success)
        assert learn(scoring, scores([1, NONE], [NONE, 0.25], [0, 0.25])) == [1, 0.25, 0]

    def test_the_total_beside_verdicts_is_clipped_and_counted(self, caplog):
        scoring = Scoring(["math", "code"], [1.0, 1.0])
        rows = scores(*[[x % 2, NONE] for x in range(32)], *[[NONE, x] for x in range(9)] * 3, [NONE, -100.0])
        for _ in range(2):
            rewards_R = np.nansum(rows, axis=1)
            measure = scoring.measure(rewards_R, rows)
            assert measure.total_range == (0.0, 8.0)
            assert measure.count_clipped(rewards_R, rows) == 1
            assert learn(scoring, rows)[-3:] == [7 / 8, 1.0, 0.0]
        assert sum("A reward of -100 lies outside" in record.message for record in caplog.records) == 1

    @given(
        st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.5, -2.0, NONE]), min_size=3, max_size=3), min_size=1),
        st.lists(st.sampled_from([0.5, 1.0]), min_size=3, max_size=3),
    )
    def test_every_rollout_with_a_reward_has_a_success(self, rows, weights):
        scoring, scores_RF = Scoring(NAMES, weights, quiet=True), scores(*rows)
        for step in range(WAIT + 2):
            success_R = np.array(learn(scoring, scores_RF))
            waits = scoring.rule is None
            assert (np.isnan(success_R) == (waits | np.isnan(scores_RF).all(axis=1))).all()
            assert not ((success_R < 0) | (success_R > 1)).any()
            assert not waits or step < WAIT or np.isnan(scores_RF).all()


@pytest.mark.parametrize(
    ("scoring", "rows", "jump"),
    [
        (Scoring(NAMES, [0.2, 1.0, 0.5], quiet=True), [[1, 0, 0.3], [0, 1, 0.2]], 1.0),
        (Scoring(NAMES, [0.2, 3.0, 0.5], success="accuracy"), [[1, 0, 0.3]], 3.0),
        (Scoring(["f"], [0.5]), [[0], [0]], 0.5),
        (Scoring(["f"], [0.5], reward_range=(-1.0, 3.0)), [[0], [2]], 4.0),
        (Scoring(NAMES, [1, 1, 1], 1.5), [[0, 0, 0]] * 4, 1.0),
    ],
)
def test_the_rise_of_the_reward_with_success(scoring, rows, jump):
    rewards_R = scoring.total_rewards(scores(*rows))
    assert scoring.measure(rewards_R, scores(*rows)).jump == pytest.approx(jump)


class TestState:
    def pair(self, first, second):
        """A scoring after two steps with `first`'s arguments, and one with `second`'s that takes its state."""
        made = [Scoring(NAMES, [0.2, 1.0, 0.5], quiet=True, **given) for given in (first, second)]
        learn(made[0], scores([1, 0, -0.3], [0, 1, 0.2]))
        learn(made[0], scores([1, 0, -5], [0, 1, 9]))
        return *made, json.loads(json.dumps(made[0].state_dict()))

    @pytest.mark.parametrize("success", [None, "length", 0.5, lambda rewards: rewards["accuracy"]])
    def test_to_the_bit(self, success):
        options = {"success": success}
        scoring, other, state = self.pair(options, options)
        other.load_state_dict(state)
        assert other.state_dict() == scoring.state_dict()
        again = scores([1, 0, 3], [0, 1, 0.2])
        assert learn(other, again) == learn(scoring, again)

    @pytest.mark.parametrize(
        ("first", "second", "message"),
        [
            ({}, {"success": "format"}, r"about accuracy, this trainer's about format. Pass success="),
            ({"success": 0.5}, {"success": 0.75}, r"at least 0.5, this trainer's about a .* at least 0.75"),
            (
                {"success": lambda rewards: rewards["format"]},
                {},
                r"what lambda \w+\(\) returns.*Pass success= as in the run",
            ),
        ],
    )
    def test_another_success(self, first, second, message):
        _, other, state = self.pair(first, second)
        before = other.state_dict()
        with pytest.raises(ba.StateError, match=message):
            other.load_state_dict(state)
        assert other.state_dict() == before

    def test_left_out_goes_on_with_what_was_saved(self):
        _, other, state = self.pair({"success": "format"}, {})
        other.load_state_dict(state)
        assert learn(other, scores([1, 0, 0], [0, 1, 0])) == [1.0, 0.0]

    @pytest.mark.parametrize(
        ("names", "weights", "success", "kept"),
        [
            (["model", "length"], [2.0, 1.0], None, True),
            (["length", "model"], [1.0, 2.0], None, True),
            (["model", "length", "logged"], [2.0, 1.0, 0.0], None, True),
            (["model", "length"], [1.0, 1.0], None, False),
            (["model", "length"], [4.0, 2.0], 0.5, False),
            (["model", "length"], [4.0, 2.0], "model", True),
        ],
    )
    def test_of_a_total_with_other_weights(self, names, weights, success, kept):
        scoring = Scoring(["model", "length"], [2.0, 1.0], success, quiet=True)
        other = Scoring(names, weights, success, quiet=True)
        learn(scoring, np.linspace(-3, 3, 32)[:, None] * [1, 1])
        if kept:
            other.load_state_dict(scoring.state_dict())
            assert other.range.range == scoring.range.range
            assert (other.sums == scoring.sums) == (weights != [4.0, 2.0])  # the sums are about the same total
            return
        with pytest.raises(ba.StateError, match="Pass the weights of the run"):
            other.load_state_dict(scoring.state_dict())

    def test_of_another_range(self):
        one, other = (Scoring(["f"], [1.0], reward_range=(0.0, high)) for high in (4.0, 8.0))
        learn(one, scores([1], [3]))
        with pytest.raises(ba.StateError, match=r"reward_range=\(0.0, 8.0\): the beliefs .* \(0.0, 4.0\)"):
            other.load_state_dict(one.state_dict())

    @pytest.mark.parametrize(
        "damage", [{"success": 1}, {"sums": None}, {"range": {}}, {"functions": 3}, {"steps": "x"}]
    )
    def test_damaged(self, damage):
        scoring, _, state = self.pair({}, {})
        before = scoring.state_dict()
        with pytest.raises(ba.StateError):
            scoring.load_state_dict(state | damage)
        assert scoring.state_dict() == before


class TestRewardsThatChangeWhileTheRunGoesOn:
    def test_the_choice_follows_names(self):
        scoring = Scoring(["format", "accuracy"], [0.5, 1.0], quiet=True)
        learn(scoring, scores([1, 0], [0, 1]))
        scoring.follow(["accuracy", "bonus"], [1.0, 1.0])
        assert scoring.rule == Rule((0,))
        scoring.follow(["bonus"], [1.0])
        assert scoring.rule is None  # its function has gone

    def test_other_weights_forget_the_total(self):
        scoring = Scoring(["f", "g"], [1.0, 1.0], "f", quiet=True)
        learn(scoring, scores([1, 0], [0, 1]))
        assert scoring.sums.n > 0
        scoring.follow(["f", "g"], [1.0, 0.5])
        assert scoring.sums.n == 0


def test_beliefs_about_one_lambda_are_not_loaded_for_another():
    def state(success):
        return ba.Session("uniform", ["a", "b"], success=success).scoring

    high, low = 0.9, 0.1
    saved = state(lambda scores: scores["a"] > high).state_dict()
    state(lambda scores: scores["a"] > high).load_state_dict(saved)
    for other in (
        lambda scores: scores["a"] > low,
        lambda scores: scores["b"] > high,
        lambda scores: scores["a"] >= high,
        lambda scores, high=0.9: scores["a"] > high,
    ):
        with pytest.raises(ba.StateError, match="lambda"):
            state(other).load_state_dict(saved)

    def correct(scores):
        return scores["a"] > 0.5

    first = state(correct).state_dict()

    def correct(scores):  # the user's name: a mended function goes on with the beliefs
        return scores["a"] > 0.4

    state(correct).load_state_dict(first)
