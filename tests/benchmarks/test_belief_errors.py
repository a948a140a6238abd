"""The error of beliefs against exact rates."""

import belief_errors
import numpy as np
import pytest

import budgetalloc as ba

TEXTS = [f"q{n}" for n in range(300)]


def test_rates_that_stand_still_have_no_lag_and_returning_prompts_are_known_better():
    still = belief_errors.World(np.tile(np.random.default_rng(0).beta(0.5, 0.5, 300), (30, 1)), TEXTS)
    first, returning, lag = belief_errors.errors(ba.BetaEstimator(prior=(0.5, 0.5)), still)
    assert first == pytest.approx(0.125, abs=0.03)  # the variance of Beta(1/2, 1/2) around the prior's 1/2
    assert returning < 0.5 * first
    assert np.isnan(lag)


def test_a_belief_that_cannot_follow_lags():
    rising = belief_errors.World(np.linspace(0.05, 0.95, 60)[:, None] + np.zeros(300), TEXTS)
    *_, slow = belief_errors.errors(ba.BetaEstimator(), rising)
    *_, fast = belief_errors.errors(ba.TrackingEstimator(), rising)
    assert slow > 0.15
    assert abs(fast) < 0.06
