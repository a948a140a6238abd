"""Rails fall back while beliefs are wrong on purpose, and return when they are right again."""

import logging

import numpy as np
import pytest
from one_step import rollouts_of

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.training.rails import _FALLEN, _HEALED, _WARNED, CHANGED, CONSTANT, REASON, Rails

SUCCESS = np.tile([0.0, 1.0], 16)
EARLIER = Sums.of(SUCCESS, SUCCESS)


def step(mean_R, success_R=SUCCESS):
    """32 rollouts of as many prompts, with firm beliefs about each."""
    mean_R = np.clip(np.asarray(mean_R, dtype=float) * np.ones(len(success_R)), 0.01, 0.99)
    belief_R = ba.Beta(1e4 * mean_R, 1e4 * (1 - mean_R))
    return rollouts_of(success_R, range(len(success_R)), belief_R=belief_R, earlier=EARLIER)


WHOLE = step(0.5)


def said(rails, quiet=False):
    """These rails, as in a session that logs."""
    rails.quiet = quiet
    return rails


def learn(rails, rollouts):
    return rails.learn(rollouts, step=None)


class Fixed(Rails):
    """Rails with the Brier scores given."""

    def see(self, brier, pool, count=32.0):
        self._compare({"brier": brier * count, "pool": pool * count, "rollouts": count})


def test_lasting_wrong_beliefs_are_warned_of_once_and_fall_back_until_they_have_healed(caplog):
    rails = said(Fixed())
    for at in range(1, _FALLEN + 1):
        assert not rails.uniform
        rails.see(0.4, 0.25)
        assert (REASON in caplog.text) == (at >= _WARNED)
    assert caplog.text.count(REASON) == 1
    assert "From now on groups are uniform" in caplog.text
    steps = 0
    while rails.uniform and steps < 200:
        assert learn(rails, WHOLE)["fallback"] == 1.0
        steps += 1
    assert _HEALED <= steps < 120  # the averages of what was wrong fade first
    assert "the policy decides again" in caplog.text


def test_lasting_wrong_beliefs_of_a_step():
    rails = said(Rails(), quiet=True)
    for _ in range(_FALLEN):
        metrics = learn(rails, step(1 - SUCCESS))
    assert metrics["baseline/brier"] > 0.9
    assert rails.uniform


@pytest.mark.parametrize(("low", "width", "learned"), [(0.0, 1.0, 0.0), (0.2, 0.5, 0.25)])
def test_healthy_steps_do_nothing_and_quick_learning_does_not_fall_back(low, width, learned, caplog):
    """The true rates are `learned` above the believed ones: advantages lean up."""
    rails = said(Rails())
    for seed in range(100):
        rng = np.random.default_rng(seed)
        mean_R = low + width * rng.random(32)
        learn(rails, step(mean_R, (rng.random(32) < mean_R + learned).astype(float)))
    assert not rails.uniform
    assert learned or not caplog.records


def test_without_fallback_it_only_warns(caplog):
    rails = said(Fixed(fallback=False))
    for _ in range(2 * _FALLEN):
        rails.see(0.4, 0.25)
    assert not rails.uniform
    assert caplog.text.count(REASON) == 1
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "From now on" not in caplog.text


def test_quiet(caplog):
    rails = said(Fixed(), quiet=True)
    for _ in range(_FALLEN):
        rails.see(0.4, 0.25)
    assert rails.uniform
    assert not caplog.records


def test_a_step_without_rewards_says_nothing():
    rails = said(Rails())
    assert learn(rails, step(0.5, np.full(4, np.nan))) == {"fallback": 0.0}
    assert rails.state_dict() == Rails().state_dict()


def test_metrics_by_hand():
    metrics = learn(Rails(), WHOLE)
    assert metrics["baseline/brier"] == pytest.approx(0.25)
    assert metrics["baseline/brier_pool_mean"] == pytest.approx(0.25)
    assert metrics["advantage/rms_grpo"] == pytest.approx(np.sqrt(7 / 8 * (1 - 2 / 256)), rel=0.01)


def test_a_saved_state_goes_on():
    first, again = Fixed(), Fixed()
    for _ in range(_FALLEN - 1):
        first.see(0.4, 0.25)
    again.load_state_dict(first.state_dict())
    for rails in (first, again):
        rails.see(0.4, 0.25)
        assert rails.uniform
    assert first.state_dict() == again.state_dict()
    off = Rails(fallback=False)
    off.load_state_dict(first.state_dict())
    assert not off.uniform


def test_a_change_of_all_rewards_is_said_once(caplog):
    rails = said(Rails())
    for _ in range(9):
        metrics = learn(rails, step(0.9, np.tile([0.0, 0.0, 0.0, 1.0], 8)))
        assert metrics["baseline/recalibrated"] == 1.0
    assert caplog.text.count(CHANGED.partition("%s")[0]) == 1
    assert "are below what was believed" in caplog.text
    assert learn(rails, WHOLE)["baseline/recalibrated"] == 0.0


@pytest.mark.parametrize("reward", [0.0, 0.7, 1.0])
def test_a_constant_reward_is_no_change_of_rewards_and_is_said_after_the_first_steps(reward, caplog):
    rails = said(Rails(fallback=False))
    for at in range(1, 3 * _WARNED):
        learn(rails, step(0.5, np.full(32, reward)))
        assert (CONSTANT % (_WARNED, reward) in caplog.text) == (at >= _WARNED)
    assert caplog.text.count("all rewards were equal") == 1
    assert CHANGED.partition("%s")[0] not in caplog.text


def test_steps_of_equal_rewards_count_in_a_row(caplog):
    rails = said(Rails())
    for at in range(3 * _WARNED):
        learn(rails, WHOLE if at % _WARNED == 0 else step(0.5, np.ones(32)))
    assert "all rewards were equal" not in caplog.text


@pytest.mark.parametrize("change", [{"sums": {}}, {"worse": None}, {"within": "x"}, {"uniform": 3}])
def test_a_damaged_state(change):
    rails = Rails()
    with pytest.raises(ba.StateError, match="damaged"):
        rails.load_state_dict({"rails": Rails().state_dict()["rails"] | change})
    assert rails.state_dict() == Rails().state_dict()


def test_a_session_has_them_only_where_advantages_follow_from_beliefs():
    assert [type(part) for part in ba.Session("adaptive", ["reward"], pool=["a"]).parts] == [Rails]
    assert not ba.Session("uniform", ["reward"]).parts
    assert ba.Session("adaptive", ["reward"], pool=["a"], fallback=False).part(Rails).fallback is False
