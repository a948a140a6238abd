"""BOTS against the released estimator, which updates arrays of all prompts at every step."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Beta, Budget, Point
from budgetalloc.methods import bots

IDS = ["a", "b", "c", "d"]
FEATURES = np.array([[0.1, 0.9], [0.0, 0.3], [0.5, 0.6], [0.2, 1.0]])


def released(history, m, lamb, rho, features):
    """`InterpolationBetaPREstimator` of Trinity-RFT; without features, no implicit evidence."""
    alphas, betas, cap = np.ones(4), np.ones(4), None
    for visits in history:
        at = [IDS.index(x) for x in visits]
        rates = np.array([visits[x] / m for x in visits])
        s, f, p, implied = np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4)
        if features is not None:
            low, high = features[at].mean(axis=0)
            estimate = (rates.mean() - low) / (high - low + 1e-6)
            cap = estimate if cap is None else 0.9 * cap + 0.1 * estimate
            p = np.clip((features[:, 1] - features[:, 0]) * cap + features[:, 0], 0, 1)
            implied = np.ones(4)
        s[at], f[at] = rates * m, (1 - rates) * m
        p[at], implied[at] = rates, 1
        alphas = (1 - lamb) * alphas + lamb + (1 - rho) * s + rho * p * m * implied
        betas = (1 - lamb) * betas + lamb + (1 - rho) * f + rho * (1 - p) * m * implied
    return alphas, betas


def believed(policy):
    """alpha and beta of each prompt, from which the policy draws."""
    seen = []
    with patch.object(Beta, "sample", lambda belief, rng: seen.append(belief) or Point(belief.mean)):
        for x in IDS:
            policy.allocate([x], Budget(rollouts=8, floor=0))
    return np.array([each.alpha_P[0] for each in seen]), np.array([each.beta_P[0] for each in seen])


HISTORY = st.lists(st.dictionaries(st.sampled_from(IDS), st.integers(0, 8), min_size=1), max_size=10)


@pytest.mark.parametrize("known", [True, False])
@given(history=HISTORY, lamb=st.sampled_from([0.2, 0.5]), rho=st.sampled_from([0.0, 0.2, 1.0]))
@settings(max_examples=15, deadline=None)
def test_the_beliefs_are_those_of_the_released_estimator(known, history, lamb, rho):
    anchors = dict(zip(IDS, FEATURES.tolist(), strict=True)) if known else None
    policy = bots(rate=lamb, weight=rho, anchors=anchors)
    for visits in history:
        policy.observe([x for x in visits for _ in range(8)], [float(k < visits[x]) for x in visits for k in range(8)])
    expected = released(history, 8, lamb, rho, FEATURES if known else None)
    assert np.array(believed(policy)) == pytest.approx(np.array(expected), rel=1e-6)
