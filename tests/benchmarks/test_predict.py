"""The prediction benchmark: its maths on made-up logs with known answers, and the real log where there is one."""

import math

import numpy as np
import predict  # of benchmarks/learning
import pytest

from budgetalloc import BetaEstimator


def made_up(groups):
    """A log from (prompt, visit, successes) of 2 rollouts."""
    return predict.Log(*np.array([(*group, 2) for group in groups]).T)


def test_likelihood_brier_and_beliefs_by_hand():
    two = made_up([(7, 0, 2), (7, 1, 1), (9, 0, 0), (9, 1, 0)])
    alpha, beta = predict.replay(BetaEstimator(prior=(1, 1), discount=0.5), two, predict.sweeps(two))
    assert alpha.tolist() == [1, 3, 1, 1]
    assert beta.tolist() == [1, 1, 1, 3]
    # Uniform: 1/3 each. Beta(3, 1): 1 of 2 has 2 * E[p(1-p)] = 2 * 3/20. Beta(1, 3): 0 of 2 has E[(1-p)^2] = 3/5.
    expected = [math.log(1 / 3), math.log(0.3), math.log(1 / 3), math.log(0.6)]
    assert predict.log_likelihood(alpha, beta, two) == pytest.approx(expected)
    # Two rollouts each: (1-p)^2, the mean of p^2 and (1-p)^2, p^2, p^2.
    assert predict.brier(alpha, beta, two) == pytest.approx([0.25, (0.75**2 + 0.25**2) / 2, 0.25, 0.25**2])


@pytest.mark.parametrize("order", ["sweeps", "epochs"])
def test_no_prediction_has_seen_its_own_or_a_later_visit(order):
    """Discount 1 and a success at each visit: what a prompt has gained before its i-th visit is i groups."""
    rng = np.random.default_rng(0)
    groups = [(p, v, 2) for p in range(40) for v in range(5 + p % 3)]
    log = made_up([groups[i] for i in rng.permutation(len(groups))])
    steps = [*(predict.sweeps(log, 16) if order == "sweeps" else predict.epochs(log, 3, 16))]
    assert sorted(np.concatenate(steps).tolist()) == list(range(len(groups)))
    for at in steps:
        assert len(at) <= 16
        assert len(set(log.prompt_G[at].tolist())) == len(at)
    alpha, beta = predict.replay(BetaEstimator(prior=(1, 1)), log, steps)
    assert (alpha == 1 + 2 * log.visit_G).all()
    assert (beta == 1).all()


def test_the_pool_learns_from_earlier_steps_only():
    log = made_up([(p, v, 2 * (v == 0)) for p in range(64) for v in range(3)])
    steps = [*predict.sweeps(log, 64)]
    alpha, beta = predict.replay(BetaEstimator(prior="pool", drift=True), log, steps)
    changed = made_up([(p, v, (2, 0, 1)[v]) for p in range(64) for v in range(3)])
    again = predict.replay(BetaEstimator(prior="pool", drift=True), changed, steps)
    assert np.array_equal([alpha, beta], again)  # only the last step's rewards differ
    assert np.unique(alpha[log.visit_G == 0]).tolist() == [0.5]


def test_the_interval_is_over_prompts():
    """Groups of one prompt are alike: 20 prompts of 50 equal groups are 20 observations, not 1,000."""
    level = np.random.default_rng(0).normal(size=20)
    mean, low, high = predict.mean_over_prompts(np.repeat(level, 50), np.repeat(np.arange(20), 50))
    assert mean == pytest.approx(level.mean())
    assert high - low == pytest.approx(2 * 2.093 * level.std(ddof=1) / math.sqrt(20), rel=1e-3)
    assert predict.mean_over_prompts(np.ones(6), np.array([0, 0, 0, 1, 1, 2])) == (1.0, 1.0, 1.0)


def test_calibration():
    p, rate = np.array([0.05, 0.05, 0.95, 1.0]), np.array([0.0, 0.5, 1.0, 1.0])
    rows = predict.calibration(p, rate)
    assert [n for n, _, _ in rows] == [2, 2]
    assert rows[0][1:] == pytest.approx((0.05, 0.25))
    assert predict.calibration_error(p, rate) == pytest.approx((2 * 0.2 + 2 * 0.025) / 4)


def test_without_the_log_it_says_so(tmp_path, capsys):
    predict.main(["--data", str(tmp_path)])
    assert "Skipped" in capsys.readouterr().out


def test_the_real_log():
    if not (predict.DATA / predict.LOG).exists():
        pytest.skip(f"no {predict.DATA / predict.LOG}")
    log = predict.read(predict.DATA / predict.LOG)
    scored = (log.visit_G >= 1) & (log.visit_G < 50)
    means = {}
    for name in (predict.BASE, "pool, discount 0.9, drift"):
        beliefs = predict.replay(BetaEstimator(**predict.ESTIMATORS[name]), log, predict.sweeps(log))
        means[name] = predict.log_likelihood(*beliefs, log)[scored].mean()
    assert means[predict.BASE] == pytest.approx(-1.0712, abs=1e-4)
    assert means["pool, discount 0.9, drift"] > -1.056
