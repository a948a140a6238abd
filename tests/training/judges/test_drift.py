"""A judge that scores the same prompts lower is found; training, selection and chance are not."""

import numpy as np
import pytest

from budgetalloc.training.judges import drift
from budgetalloc.training.judges.drift import ScoreDrift

PROMPTS = 200


def run(score, steps, *, weights=(1.0, 1.0), seed=0, rollouts=64, choose=None):
    """The steps at which functions drifted. `score(rng, step, rate_R)` returns scores, shape (R, F)."""
    rng, found = np.random.default_rng(seed), []
    rate_P, seen, last_P = rng.beta(0.7, 0.7, size=PROMPTS), ScoreDrift(weights), np.zeros(PROMPTS)
    for step in range(steps):
        weight_P = np.ones(PROMPTS) if choose is None else choose(last_P)
        at_R = rng.choice(PROMPTS, size=rollouts, p=weight_P / weight_P.sum())
        scores_RF = score(rng, step, rate_P[at_R])
        last_P[at_R] = np.nan_to_num(scores_RF[:, 0])
        found += [(step, f) for f in seen.add(at_R.tolist(), scores_RF)]
    return found, seen


def both(rng, first_R, second_R):
    return np.stack([rng.random(len(first_R)) < first_R, rng.random(len(second_R)) < second_R], axis=1).astype(float)


def graded(rng, mean_R, second_R):
    return np.stack(
        [np.clip(mean_R + rng.normal(0, 0.15, len(mean_R)), 0, 1), rng.random(len(mean_R)) < second_R], axis=1
    )


def strict(kind):
    """From step 64 on, the first function gives 0.4 of what it gave; the second one throws a coin."""
    return lambda rng, step, p_R: kind(rng, p_R * (1.0 if step < 64 else 0.4), np.full(len(p_R), 0.5))


@pytest.mark.parametrize("kind", [both, graded])
def test_a_judge_that_turns_strict_is_found_soon(kind):
    found, _ = run(strict(kind), 100)
    assert found
    assert 64 <= found[0][0] <= 88
    assert {f for _, f in found} == {0}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_fall_is_one_against_the_sign_of_the_weight(sign):
    """A penalty that grows is a fall of the reward; one that shrinks is what training is for."""
    found, _ = run(
        lambda rng, step, p_R: both(rng, np.full(64, 0.3 if step < 64 else 0.8), p_R), 100, weights=(sign, 1.0)
    )
    assert bool(found) == (sign < 0)


HEALTHY = {
    "nothing changes": lambda rng, step, p_R: both(rng, p_R, p_R),
    "the model learns, and stops to": lambda rng, step, p_R: both(
        rng, np.maximum(p_R, min(step, 100) / 120), np.full(len(p_R), 0.5)
    ),
    "all rewards fall together": lambda rng, step, p_R: both(
        rng, p_R * (1 - 0.5 * (step > 60)), p_R * (1 - 0.5 * (step > 60))
    ),
    "a penalty pays for right answers": lambda rng, step, p_R: both(
        rng, np.full(len(p_R), 0.9 - 0.5 * (step > 60)), np.full(len(p_R), 0.3 + 0.6 * (step > 60))
    ),
    "rare": lambda rng, step, p_R: both(rng, p_R * 0.02, p_R),
    "constant": lambda rng, step, p_R: np.stack([np.full(len(p_R), 0.2), rng.random(len(p_R)) < p_R], axis=1),
    "often without a score": lambda rng, step, p_R: np.where(
        rng.random((len(p_R), 2)) < 0.7, np.nan, both(rng, p_R, p_R)
    ),
}
CHOICES = {
    "evenly": None,
    "after a success": lambda last_P: 0.1 + last_P,
    "after a failure": lambda last_P: 1.1 - last_P,
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("change", HEALTHY)
def test_what_is_healthy_does_not_drift(change, choice):
    for seed in range(2):
        assert run(HEALTHY[change], 160, seed=seed, choose=CHOICES[choice])[0] == []


@pytest.mark.parametrize("choice", CHOICES)
def test_the_stated_rate_of_false_alarms_holds(monkeypatch, choice):
    """At a level of 10 % and without the other conditions, so that alarms are frequent enough to be counted."""
    monkeypatch.setattr(drift, "_LEVEL", 0.1)
    monkeypatch.setattr(drift, "_LEAST", -9.0)
    monkeypatch.setattr(drift, "_AGREE", -1.0)
    monkeypatch.setattr(drift.ScoreDrift, "_compare", steady(drift.ScoreDrift._compare))
    tests = alarms = 0
    for seed in range(4):
        found, _ = run(HEALTHY["nothing changes"], 808, seed=seed, choose=CHOICES[choice])
        alarms += len(found)
        tests += 2 * (808 // 8 - 3)
    assert 0 < alarms / tests < 0.1  # both of the two tests must agree


def steady(compare):
    """The others' mean difference is left out: it would explain a fall that both functions share by chance."""

    def alone(self, *given):
        compare(self, *given)
        if self._others:
            self._others[-1] = np.zeros_like(self._others[-1])

    return alone


def test_one_function_alone_cannot_be_told_from_the_model():
    found, seen = run(lambda rng, step, p_R: both(rng, p_R * (step < 64), p_R)[:, :1], 100, weights=(1.0,))
    assert found == []
    assert np.isfinite(seen.fall_F).all()  # it is measured all the same
