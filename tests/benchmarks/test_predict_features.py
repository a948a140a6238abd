"""Predictions of a logged run, on the synthetic stand-in."""

import numpy as np
import predict_features
import pytest

import budgetalloc as ba


def test_texts_that_tell_help_and_shuffled_ones_do_not():
    log, prompts = predict_features.synthetic()
    lines = predict_features.table(log, prompts, seen=1)
    rows = {cells[0]: cells[1:] for line in lines[2:] for cells in [[c.strip() for c in line.strip("| ").split("|")]]}
    early = {name: float(cells[1]) for name, cells in rows.items()}  # 1 to 4 visits before
    assert early["tracking, text"] < 0.9 * early["tracking"]
    assert early["tracking, texts shuffled"] < 1.05 * early["tracking"]
    assert all(early[name] > early["floor"] for name in early if name != "floor")


def test_the_gaussian_process_is_bayes_rule_for_one_prompt_and_shares_by_text():
    """Alone, precisions add: prior 1 / (SHARED + OWN) at 0 and the group's 1 / (1 / 3.5 + 1 / 5.5) at its log-odds."""
    features = ba.Features.of_texts(range(40), ["add 1", "sort b"] * 20)
    process = predict_features.Gaussian(features, list(range(40)))
    process.observe([0] * 8, np.array([1.0] * 3 + [0.0] * 5))
    prior, noise = process.SHARED + process.OWN, 1 / 3.5 + 1 / 5.5
    assert process.mean_P[0] == pytest.approx(prior / (prior + noise) * np.log(3.5 / 5.5))
    assert process.covariance_PP[0, 0] == pytest.approx(prior * noise / (prior + noise))
    like, other = process.mean_P[2], process.mean_P[1]
    assert like == pytest.approx(process.SHARED / (prior + noise) * np.log(3.5 / 5.5))
    assert abs(other) < 0.7 * abs(like)
    belief = process.belief([0, 2])
    assert belief.alpha_P[0] + belief.beta_P[0] > belief.alpha_P[1] + belief.beta_P[1]  # the visited one is surer
