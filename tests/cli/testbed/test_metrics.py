"""Metrics of exact probabilities, compared with sampling."""

import numpy as np
import pytest

from budgetalloc.cli.testbed.metrics import of_baselines, pass_at


def test_pass_at_k_is_the_chance_of_one_right_answer_in_k() -> None:
    rng = np.random.default_rng(0)
    right_P = rng.random(50) ** 3
    tossed = rng.random((20_000, 50, 8)) < right_P[:, None]
    assert pass_at(right_P, 8) == pytest.approx(tossed.any(axis=2).mean(), abs=0.003)
    assert pass_at(right_P, 1) == pytest.approx(right_P.mean())
    assert np.isnan(pass_at([], 8))


def test_the_share_explained_is_that_of_fresh_rewards() -> None:
    rng = np.random.default_rng(1)
    true_R = rng.random(400_000)
    baseline_R = true_R + rng.normal(0, 0.2, true_R.size)
    rewards_R = rng.random(true_R.size) < true_R
    error, share = of_baselines(baseline_R, true_R)
    assert error == pytest.approx(0.04, abs=0.001)
    assert share == pytest.approx(1 - np.mean((rewards_R - baseline_R) ** 2) / rewards_R.var(), abs=0.005)
    assert of_baselines([0.5, 0.5], [1.0, 1.0]) == (0.25, None)
