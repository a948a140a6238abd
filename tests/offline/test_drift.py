"""Drift and the discount it asks for: against hand counts, and against walks whose drift is known."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.offline.drift import discount, drift

NAN = float("nan")


def log_of(visits):
    """From {id: [rewards of a visit, ...]}; visit v of prompt k is at step 10 v + k."""
    rows = [
        (10 * v + at, name, reward)
        for at, (name, of_prompt) in enumerate(visits.items())
        for v, rewards in enumerate(of_prompt)
        for reward in rewards
    ]
    step, ids, rewards = zip(*rows, strict=True) if rows else ((), (), ())
    return ba.Ledger(np.array(step, int), list(ids), np.array(rewards, float), *np.zeros((3, len(rows)), dtype=int))


def walk(step, visits=12, prompts=4000, group=8, seed=0):
    """Prompts around 0.5 that move by +-step at each visit."""
    rng = np.random.default_rng(seed)
    rates_VP = 0.5 + np.cumsum(rng.choice([-step, step], (visits, prompts)), axis=0)
    rewards_VPR = rng.random((visits, prompts, group)) < rates_VP[..., None]
    step_R, ids_R = np.repeat(np.arange(visits), prompts * group), np.tile(np.repeat(np.arange(prompts), group), visits)
    return ba.Ledger(step_R, ids_R.tolist(), rewards_VPR.ravel() * 1.0, *np.zeros((3, len(step_R)), dtype=int))


def test_drift_by_hand():
    """a moves from 1/2 to 1, b from 1/2 to 1/4: changes of 0.5 and -0.25, variance 0.28125, noise of both visits."""
    log = log_of({"a": [[0, 1, 0, 1], [1, 1, 1, 1]], "b": [[0, 1, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1]], "c": [[1, 1]]})
    first, second = drift(log)
    half, quarter = (1 / 3) / 4, (0.75 / 3) / 4  # sample variance of the rewards, by 4
    noise = (half + half + quarter) / 2
    assert first == pytest.approx(
        {"visit": 1, "prompts": 2, "mean": 0.625, "change": 0.125, "sd": (0.28125 - noise) ** 0.5, "noise": noise**0.5}
    )
    assert (second["visit"], second["prompts"], second["change"], second["sd"]) == (2, 1, 0.75, 0)
    (far,) = drift(log, lag=2)
    assert (far["visit"], far["change"]) == (2, 0.5)


def test_rewards_that_are_missing_or_alone_are_left_out():
    log = log_of({"a": [[0, 1], [NAN, 1], [1, 1]], "b": [[NAN, 0, 1], [1, NAN, 1], [0]], "c": [[NAN], [1]]})
    assert [(row["visit"], row["prompts"], row["mean"]) for row in drift(log)] == [(1, 1, 1.0)]


def test_a_log_at_rest_has_no_drift_and_a_walk_has_its_own():
    assert discount(walk(0.0)) > 0.95
    for step in (0.03, 0.06):
        rows = drift(walk(step), lag=1)
        estimate = np.mean([row["sd"] ** 2 for row in rows]) ** 0.5
        assert estimate == pytest.approx(step, rel=0.25)
        assert all(row["noise"] == pytest.approx((2 * 0.25 / 8) ** 0.5, rel=0.2) for row in rows)


@pytest.mark.parametrize(("step", "group"), [(0.04, 8), (0.06, 4)])
def test_the_discount_is_the_one_that_predicts_best(step, group):
    """Of the exponential averages of earlier visits, the one with this discount errs least on the next visit."""
    log = walk(step, visits=16, group=group)
    mean_VP = log.rewards_R.reshape(16, 4000, group).mean(axis=2)
    errors = {}
    for tried in np.arange(0.3, 1.0, 0.02):
        average_P, squares = np.full(4000, 0.5), []
        for at, mean_P in enumerate(mean_VP):
            if at >= 8:
                squares.append(np.mean((mean_P - average_P) ** 2))
            average_P = tried * average_P + (1 - tried) * mean_P
        errors[tried] = np.mean(squares)
    assert discount(log) == pytest.approx(min(errors, key=errors.get), abs=0.06)


def test_short_logs_have_no_discount():
    assert np.isnan(discount(log_of({"a": [[0, 1], [1, 1]]})))  # one prompt has no variance
    assert np.isnan(discount(log_of({})))
    assert drift(log_of({})) == []
    assert drift(log_of({"a": [[0, 1]], "b": [[0, 1]]})) == []
    short = log_of({k: [[0, 1, 0, 1], [k % 2] * 4] for k in range(9)})
    assert discount(short) == discount(short, lag=1) < 0.6  # fewer visits than the lag: as many as there are
