"""The scores of predictions of a log: their maths on made-up logs with known answers."""

import math

import numpy as np
import predict  # of benchmarks/learning
import predict_features
import pytest

from budgetalloc import BetaEstimator


def made_up(groups):
    """A log from (prompt, visit, successes) of 2 rollouts."""
    return predict.Log(*np.array([(*group, 2) for group in groups]).T)


def test_likelihood_brier_and_beliefs_by_hand():
    two = made_up([(7, 0, 2), (7, 1, 1), (9, 0, 0), (9, 1, 0)])
    alpha, beta = predict_features.predictions(BetaEstimator(prior=(1, 1), discount=0.5), two, seen=2)
    assert alpha.tolist() == [1, 3, 1, 1]
    assert beta.tolist() == [1, 1, 1, 3]
    # Uniform: 1/3 each. Beta(3, 1): 1 of 2 has 2 * E[p(1-p)] = 2 * 3/20. Beta(1, 3): 0 of 2 has E[(1-p)^2] = 3/5.
    expected = [math.log(1 / 3), math.log(0.3), math.log(1 / 3), math.log(0.6)]
    assert predict.log_likelihood(alpha, beta, two) == pytest.approx(expected)
    # Two rollouts each: (1-p)^2, the mean of p^2 and (1-p)^2, p^2, p^2.
    assert predict.brier(alpha, beta, two) == pytest.approx([0.25, (0.75**2 + 0.25**2) / 2, 0.25, 0.25**2])


def test_no_prediction_has_seen_its_own_or_a_later_visit():
    """Discount 1 and a success at each visit: what a prompt has gained before its i-th visit is i groups."""
    rng = np.random.default_rng(0)
    groups = [(p, v, 2) for p in range(40) for v in range(5 + p % 3)]
    log = made_up([groups[i] for i in rng.permutation(len(groups))])
    steps = [*predict.sweeps(log, 16)]
    assert sorted(np.concatenate(steps).tolist()) == list(range(len(groups)))
    for at in steps:
        assert len(at) <= 16
        assert len(set(log.prompt_G[at].tolist())) == len(at)
    alpha, beta = predict_features.predictions(BetaEstimator(prior=(1, 1)), log, seen=2)
    assert (alpha == 1 + 2 * log.visit_G).all()
    assert (beta == 1).all()
