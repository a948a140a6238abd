"""Metrics of exact probabilities, compared with sampling."""

import numpy as np
import pytest

from budgetalloc.cli.testbed.metrics import by_difficulty, of_baselines, pass_at


def test_pass_at_k_is_the_chance_of_one_right_answer_in_k() -> None:
    rng = np.random.default_rng(0)
    right_P = rng.random(50) ** 3
    tossed = rng.random((20_000, 50, 8)) < right_P[:, None]
    assert pass_at(right_P, 8) == pytest.approx(tossed.any(axis=2).mean(), abs=0.003)
    assert pass_at(right_P, 1) == pytest.approx(right_P.mean())
    assert np.isnan(pass_at([], 8))


def test_quartiles_are_by_the_start_and_in_equal_parts() -> None:
    start_P = np.array([0.9, 0.1, 0.5, 0.3, 0.7, 0.2, 0.6, 0.4])
    summary = by_difficulty(start_P, 1 - start_P)
    assert [start for start, _ in summary["quartiles"]] == pytest.approx([0.15, 0.35, 0.55, 0.8])
    assert [end for _, end in summary["quartiles"]] == pytest.approx([0.85, 0.65, 0.45, 0.2])
    assert (summary["lost"], summary["gained"], summary["prompts"]) == (1, 2, 8)  # 0.9; 0.1 and 0.2


@pytest.mark.parametrize(
    ("start", "end", "lost", "gained"), [(0.5, 0.25, 0, 0), (0.5, 0.24, 1, 0), (0.25, 0.5, 0, 0), (0.24, 0.5, 0, 1)]
)
def test_the_edges_of_lost_and_gained(start: float, end: float, lost: int, gained: int) -> None:
    summary = by_difficulty([start], [end])
    assert (summary["lost"], summary["gained"]) == (lost, gained)


def test_the_share_explained_is_that_of_fresh_rewards() -> None:
    rng = np.random.default_rng(1)
    true_R = rng.random(400_000)
    baseline_R = true_R + rng.normal(0, 0.2, true_R.size)
    rewards_R = rng.random(true_R.size) < true_R
    error, share = of_baselines(baseline_R, true_R)
    assert error == pytest.approx(0.04, abs=0.001)
    assert share == pytest.approx(1 - np.mean((rewards_R - baseline_R) ** 2) / rewards_R.var(), abs=0.005)
    assert of_baselines([0.5, 0.5], [1.0, 1.0]) == (0.25, None)
