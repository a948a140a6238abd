"""Rails fall back while beliefs are wrong on purpose, and return when they are right again."""

import logging

import numpy as np
import pytest
from one_step import rollouts_of

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.training.rails import _FALLEN, _HEALED, _WARNED, CHANGED, REASON, Rails
from budgetalloc.training.scoring import Scoring

RNG = np.random.default_rng(0)
SUCCESS = np.tile([0.0, 1.0], 16)
EARLIER = Sums().plus(SUCCESS, SUCCESS)


def step(mean_R, success_R=SUCCESS):
    """32 rollouts of as many prompts, with firm beliefs about each."""
    mean_R = np.clip(np.asarray(mean_R, dtype=float) * np.ones(len(success_R)), 0.01, 0.99)
    belief_R = ba.Beta(1e4 * mean_R, 1e4 * (1 - mean_R))
    return rollouts_of(success_R, range(len(success_R)), belief_R=belief_R, earlier=EARLIER)


WHOLE = step(0.5)


class Fixed(Rails):
    """Rails with the Brier scores given."""

    def see(self, brier, pool, count=32.0):
        self._learn({"brier": brier * count, "pool": pool * count, "rollouts": count})


def test_lasting_wrong_beliefs_are_warned_of_once_and_fall_back_until_they_have_healed(caplog):
    rails = Fixed()
    for at in range(1, _FALLEN + 1):
        assert not rails.fallen
        rails.see(0.4, 0.25)
        assert (REASON in caplog.text) == (at >= _WARNED)
    assert caplog.text.count(REASON) == 1
    assert "From now on groups are uniform" in caplog.text
    steps = 0
    while rails.fallen and steps < 200:
        assert rails.look(WHOLE)["fallback"] == 1.0
        steps += 1
    assert _HEALED <= steps < 120  # the averages of what was wrong fade first
    assert "the policy decides again" in caplog.text


def test_lasting_wrong_beliefs_of_a_step():
    rails = Rails(quiet=True)
    for _ in range(_FALLEN):
        metrics = rails.look(step(1 - SUCCESS))
    assert metrics["baseline/brier"] > 0.9
    assert rails.fallen


@pytest.mark.parametrize(("low", "width", "learned"), [(0.0, 1.0, 0.0), (0.2, 0.5, 0.25)])
def test_healthy_steps_do_nothing_and_quick_learning_does_not_fall_back(low, width, learned, caplog):
    """The true rates are `learned` above the believed ones: advantages lean up."""
    rails = Rails()
    for seed in range(100):
        rng = np.random.default_rng(seed)
        mean_R = low + width * rng.random(32)
        rails.look(step(mean_R, (rng.random(32) < mean_R + learned).astype(float)))
    assert not rails.fallen
    assert learned or not caplog.records


def test_without_fallback_it_only_warns(caplog):
    rails = Fixed(fallback=False)
    for _ in range(2 * _FALLEN):
        rails.see(0.4, 0.25)
    assert not rails.fallen
    assert caplog.text.count(REASON) == 1
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "From now on" not in caplog.text


def test_quiet(caplog):
    rails = Fixed(quiet=True)
    for _ in range(_FALLEN):
        rails.see(0.4, 0.25)
    assert rails.fallen
    assert not caplog.records


def test_a_step_without_rewards_says_nothing():
    rails = Rails()
    assert rails.look(step(0.5, np.full(4, np.nan))) == {"fallback": 0.0}
    assert rails.state_dict() == Rails().state_dict()


def test_metrics_by_hand():
    metrics = Rails().look(WHOLE)
    assert metrics["baseline/brier"] == pytest.approx(0.25)
    assert metrics["baseline/brier_pool_mean"] == pytest.approx(0.25)
    assert metrics["advantage/rms_grpo"] == pytest.approx(np.sqrt(7 / 8 * (1 - 2 / 256)), rel=0.01)


def test_a_saved_state_goes_on():
    first, again = Fixed(quiet=True), Fixed(quiet=True)
    for _ in range(_FALLEN - 1):
        first.see(0.4, 0.25)
    again.load_state_dict(first.state_dict())
    for rails in (first, again):
        rails.see(0.4, 0.25)
        assert rails.fallen
    assert first.state_dict() == again.state_dict()
    off = Rails(fallback=False)
    off.load_state_dict(first.state_dict())
    assert not off.fallen


def test_a_state_of_0_3_loads():
    rails, sums = Rails(), {"brier": 8.0, "pool": 8.0, "rollouts": 32.0, "lean": 1.0, "square": 3.0, "grpo": 3.0}
    rails.load_state_dict({"fallen": True, "sums": sums, "out": {"beliefs": 4, "lean": 31, "size": 0}, "within": 2})
    assert rails.fallen
    assert rails.state_dict()["worse"] == 4


@pytest.mark.parametrize("change", [{"sums": {}}, {"worse": None}, {"within": "x"}, {"fallen": None, "sums": 3}])
def test_a_damaged_state(change):
    rails = Rails()
    with pytest.raises(ba.StateError, match="damaged"):
        rails.load_state_dict(Rails().state_dict() | change)
    infinite = Rails().state_dict()
    infinite["sums"]["brier"] = float("inf")
    with pytest.raises(ba.StateError, match="not finite"):
        rails.load_state_dict(infinite)
    assert rails.state_dict() == Rails().state_dict()


def test_they_are_in_the_state_of_the_scoring():
    scoring, again = (Scoring(["reward"], [1.0], rails=Fixed(quiet=True)) for _ in range(2))
    for _ in range(_FALLEN):
        scoring.rails.see(0.4, 0.25)
    again.load_state_dict(scoring.state_dict(), ba.adaptive())
    assert again.rails.fallen
    without = Scoring(["reward"], [1.0])
    without.load_state_dict(scoring.state_dict(), ba.uniform())
    again.load_state_dict(without.state_dict(), ba.adaptive())
    assert again.rails.fallen  # a state without rails leaves them as they are


def test_a_change_of_all_rewards_is_said_once(caplog):
    rails = Rails()
    for _ in range(9):
        metrics = rails.look(step(0.9, np.tile([0.0, 0.0, 0.0, 1.0], 8)))
        assert metrics["baseline/recalibrated"] == 1.0
    assert caplog.text.count(CHANGED.partition("%s")[0]) == 1
    assert "are below what was believed" in caplog.text
    assert rails.look(WHOLE)["baseline/recalibrated"] == 0.0
