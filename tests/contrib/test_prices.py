"""Prices of seconds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import StateError
from budgetalloc.contrib.prices import Seconds


def steps_of(true, rng, steps=60, noise=0.0):
    """A fit to steps of 64 rollouts whose seconds are these prices times their quantities."""
    seconds = Seconds()
    for _ in range(steps):
        each = rng.integers(1_000, 9_000)
        row = np.array([64, each // rng.integers(1, 9), each, rng.integers(1_000, 9_000)], dtype=float)
        seconds.learn(row, float(row @ true) * (1 + noise * rng.standard_normal()))
    return seconds


@pytest.mark.parametrize("true", [[0, 0.1, 0.0, 1.0], [9.0, 0.0, 0.0, 0.2], [0.0, 0.0, 0.5, 0.5], [5.0, 0.3, 0.2, 0.1]])
def test_true_prices_are_found(true):
    true = 0.001 * np.array(true)
    fit = steps_of(true, np.random.default_rng(0), noise=0.03)
    row = np.array([64, 2_000, 5_000, 5_000])
    assert (fit.prices * row).sum() == pytest.approx((true * row).sum(), rel=0.05)
    assert fit.prices * row == pytest.approx(true * row, abs=0.12 * float(true @ row))  # in shares of a step


def test_before_any_step_prices_are_a_guess_and_units_do_not_matter():
    once_P, each_P = Seconds()(np.array([100.0]), np.array([50.0]))
    assert once_P.tolist() == [10.0]
    assert each_P.tolist() == [61.0]
    fits = [steps_of(0.001 * np.ones(4) * unit, np.random.default_rng(2)).prices for unit in (1, 1000)]
    assert fits[1] == pytest.approx(1000 * fits[0])


@pytest.mark.parametrize("true", [[1e-3, 1e-4, 1e-4, 1e-3], [0.04, 0, 0, 0], [0.01, 4e-4, 2e-4, 1e-4], [0, 0, 0, 1e-3]])
@pytest.mark.parametrize(("steps", "usually", "always"), [(20, 1.25, 1.6), (60, 1.1, 1.2)])
def test_stalls_of_one_step_in_20_do_not_move_prices(true, steps, usually, always):
    """100 runs in which every 20th step takes ten times as long. The costs of short and long prompts and answers, in
    groups of 2, are within the factor `always` of the truth, and within `usually` in nine runs of ten."""
    prompts, answers = np.array([20.0, 20.0, 200.0, 200.0]), np.array([20.0, 200.0, 20.0, 200.0])
    real = true[0] + prompts * (true[1] / 2 + true[2]) + answers * true[3]
    off = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        prompt, answer, group = rng.integers((1_000, 1_000, 1), (9_000, 9_000, 9), (steps, 3)).T
        rows = np.column_stack([np.full(steps, 64), prompt // group, prompt, answer])
        took = rows @ true * np.exp(0.03 * rng.standard_normal(steps))
        took[rng.integers(20) :: 20] *= 10
        fit = Seconds(np.column_stack([rows, took]))
        assert (fit.prices > 0).all()
        once_P, each_P = fit(prompts, answers)
        off.append(np.exp(np.abs(np.log((once_P / 2 + each_P) / real)).max()))
    assert np.quantile(off, 0.9) < usually
    assert max(off) < always


@given(st.lists(st.tuples(*[st.floats(allow_nan=True)] * 5), max_size=12), st.integers(0, 12))
@settings(deadline=None)
def test_prices_are_positive_and_finite_whatever_is_learned(steps, usual):
    fit = Seconds()
    for *quantities, seconds in [(64.0, 100.0, 300.0, 900.0, 2.0)] * usual + steps:
        fit.learn(quantities, seconds)
        assert ((fit.prices > 0) & np.isfinite(fit.prices)).all()


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, np.inf])
def test_an_impossible_step_changes_nothing(seconds):
    fit = steps_of(0.001 * np.ones(4), np.random.default_rng(0))
    before = fit.prices.copy()
    fit.learn([64, 1_000, 4_000, 9_000], seconds)
    fit.learn([64, 0, 4_000, 9_000], 1.0)
    assert (fit.prices == before).all()
    assert len(fit.steps) == 60


def test_the_last_64_steps_are_remembered():
    """A machine that is twice as fast from some step on."""
    rng, fit = np.random.default_rng(0), Seconds()
    for step in range(164):
        row = np.array([64, 1_000, 4_000, rng.integers(1_000, 9_000)])
        fit.learn(row, row[3] * (0.002 if step < 100 else 0.001))
    assert fit.steps.shape == (64, 5)
    assert fit.prices[3] == pytest.approx(0.001, rel=0.05)


def test_the_state_of_seconds_is_restored_or_refused():
    fit, copy = steps_of(0.001 * np.ones(4), np.random.default_rng(3)), Seconds()
    copy.load_state_dict(fit.state_dict())
    assert (copy.prices == fit.prices).all()
    fit.learn([64, 1_000, 4_000, 9_000], 3.0)
    copy.learn([64, 1_000, 4_000, 9_000], 3.0)
    assert (copy.prices == fit.prices).all()
    for bad in (None, np.zeros((2, 2)), np.ones((6, 6)), np.zeros((1, 5)), np.full((6, 5), np.nan)):
        with pytest.raises(StateError, match="prices in seconds"):
            copy.load_state_dict({} if bad is None else {"seconds": bad})
    assert (copy.prices == fit.prices).all()
    copy.load_state_dict(Seconds().state_dict())
    assert (copy.prices == Seconds().prices).all()
