"""One warning for each function and fault, in a session, which goes on as without it."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.training.judges.alarm import JudgeAlarm
from budgetalloc.training.session import Session

POOL = [f"q{at}" for at in range(100)]


def played(judge, steps=60, *, weights=(1.0, 1.0), quiet=False):
    """A session of two rewards, a verifier that passes half of the time and `judge(rng, step, right_R)`."""
    session = Session(ba.adaptive(seed=0), ["right", "judge"], weights, pool=POOL, quiet=quiet)
    ended = []
    for step in range(steps):
        rng = np.random.default_rng([step, 1])
        session.begin([], 64, 8)
        ids_R = session.request()
        right_R = (rng.random(len(ids_R)) < 0.5).astype(float)
        scores_RF = np.stack([right_R, judge(rng, step, right_R)], axis=1)
        keys_R = [f"{name} {right}" for name, right in zip(ids_R, right_R, strict=True)]  # two completions a prompt
        session.observe(ids_R, scores_RF, [5] * len(ids_R), completions_R=keys_R)
        ended.append(session.end())
    return ended


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name.endswith("judges.alarm")]


def test_a_judge_that_dies_is_said_once_and_ends_nothing(caplog):
    ended = played(lambda rng, step, right_R: np.full(len(right_R), 0.5) if step >= 30 else right_R)
    dead = [each.metrics.get("judge/judge/dead") for each in ended]
    assert set(dead[:6]) == {None}  # fewer than 512 groups
    assert set(dead[16:30]) == {0.0}
    assert dead[-1] == 1.0
    messages = [text for text in said(caplog) if "may be dead" in text]
    assert len(messages) == 1
    assert "The reward function judge may be dead: its scores are all 0.5, although they varied before" in messages[0]


@pytest.mark.parametrize(
    ("value", "weights", "alarm"), [(0.5, (1, 3), True), (0.5, (3, 1), False), (0.0, (1, 3), False)]
)
def test_a_judge_that_never_varied_is_dead_only_if_most_of_the_reward_is_its(caplog, value, weights, alarm):
    ended = played(lambda rng, step, right_R: np.full(len(right_R), value), 20, weights=weights)
    assert ended[-1].metrics["judge/judge/dead"] == float(alarm)
    assert len(said(caplog)) == alarm
    if alarm:
        assert "its scores are all 0.5, for all of the first" in said(caplog)[0]


def test_a_judge_that_turns_strict_drifts(caplog):
    played(lambda rng, step, right_R: rng.random(len(right_R)) < (0.8 if step < 32 else 0.2), 72)
    (drift,) = [text for text in said(caplog) if "drift" in text]
    assert "The reward function judge may drift: in the last 8 steps its scores fell by" in drift


def test_a_judge_that_throws_a_coin_disagrees_with_itself(caplog):
    ended = played(lambda rng, step, right_R: np.where(rng.random(len(right_R)) < 0.8, right_R, 1 - right_R))
    (message,) = said(caplog)
    assert "judge disagrees with itself" in message
    assert ended[-1].metrics["judge/judge/disagree"] == pytest.approx(2 * 0.8 * 0.2, abs=0.03)
    assert ended[-1].metrics["judge/judge/difference"] == pytest.approx(2 * 0.8 * 0.2, abs=0.03)
    assert ended[-1].metrics["judge/right/disagree"] == 0


def test_healthy_functions_are_silent(caplog):
    ended = played(lambda rng, step, right_R: 0.2 + 0.3 * right_R)
    assert said(caplog) == []
    assert ended[-1].metrics["judge/right/dead"] == ended[-1].metrics["judge/judge/dead"] == 0
    assert abs(ended[-1].metrics["judge/judge/drift"]) < 0.5


def test_other_processes_are_quiet(caplog):
    played(lambda rng, step, right_R: rng.random(len(right_R)), 20, quiet=True)
    assert said(caplog) == []


@pytest.mark.parametrize("keys", [["x"], [["a"], ["b"]], 3])
def test_wrong_keys_are_refused_and_the_step_goes_on(keys):
    session = Session(ba.uniform(), ["reward"])
    session.begin(["a"], 2, 2)
    ids_R = session.request()
    with pytest.raises(ba.InputError, match="completions_R"):
        session.observe(ids_R, [0, 1], [3, 3], completions_R=keys)
    session.observe(ids_R, [0, 1], [3, 3], completions_R=["x", "y"])
    assert session.end().batch.completions_R == ["x", "y"]


def test_scores_that_are_not_finite_count_as_none():
    alarm, group_G = JudgeAlarm(["a", "b"], [1.0, 1.0]), np.arange(64)
    for step in range(40):
        scores_RF = np.random.default_rng(step).random((64, 2))
        scores_RF[::7, 0], scores_RF[::5, 1] = np.inf, -np.inf
        metrics = alarm.look(group_G.tolist(), group_G, scores_RF)
    assert abs(metrics["judge/a/drift"]) < 1


def test_without_keys_of_completions_disagreement_is_unknown():
    metrics = JudgeAlarm(["a"], [1.0]).look(["x"], np.zeros(1, dtype=int), np.ones((1, 1)))
    assert metrics == {}
