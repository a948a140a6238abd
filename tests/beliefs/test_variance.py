"""The variance within a prompt is the true one, and the predicted size of GRPO's advantages is GRPO's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.expected_reward import (
    Known,
    Sums,
    bernoulli_variance,
    deviations,
    graded_variances,
    grpo_square,
    pool_variances,
    prior_share,
    share_alike,
    variances,
)
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.policies.advantages import group_advantages

PRIOR = (0.3, 0.3)


def test_bernoulli_variance_is_at_least_that_of_a_twentieth():
    least = 0.05 * 0.95
    got = bernoulli_variance(np.array([0.0, 0.05, 0.2, 0.95, 1.0]))
    assert got == pytest.approx([least, least, 0.16, least, least])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 1.0, 0.25, 0.7])), min_size=1, max_size=20),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 1.0, 0.5, np.nan])), min_size=1, max_size=9),
)
def test_the_evidence_about_a_prompt_is_its_past_and_its_other_rollouts(past, now):
    estimator = BetaEstimator(prior=PRIOR)
    estimator.observe([x for x, _ in past], [s for _, s in past])
    estimator.tick()
    ids, success_R = [x for x, _ in now], np.array([s for _, s in now])
    known = Known.of(success_R, np.unique(ids, return_inverse=True)[1], estimator.belief(ids), PRIOR)
    for row, name in enumerate(ids):
        rest = [s for x, s in past if x == name]
        rest += [s for at, (x, s) in enumerate(now) if x == name and at != row and s == s]
        got = known.n_R[row], known.sum_R[row], known.squares_R[row]
        assert got == pytest.approx((len(rest), sum(rest), sum(s * s for s in rest)), abs=1e-9)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("visits", [1, 4])
def test_the_variance_within_prompts_is_found_between_any(graded, visits):
    """2,000 prompts have means far apart. The variance over all rollouts therefore differs."""
    rng = np.random.default_rng(0)
    estimator, sums = BetaEstimator(prior=PRIOR), Sums()
    mean_P = rng.beta(1, 1, 2000) * 0.8 + 0.1
    true = 0.02**2 if graded else float(np.mean(mean_P * (1 - mean_P)))
    at_R = np.repeat(np.arange(2000), 2 if visits == 1 else 1)
    for _ in range(visits):
        noise_R = 0.02 * rng.normal(size=len(at_R)) if graded else 0.0
        success_R = mean_P[at_R] + noise_R if graded else (rng.random(len(at_R)) < mean_P[at_R]).astype(float)
        known = Known.of(success_R, at_R, estimator.belief(at_R), PRIOR)
        within, pairs = deviations(success_R, known)
        sums = sums.with_sums(Sums(within=within, pairs=pairs)).plus(success_R, success_R)
        estimator.observe(at_R, success_R)
        estimator.tick()
    within, between = pool_variances(sums)
    assert within == pytest.approx(true, rel=0.08)
    assert between == pytest.approx(np.var(mean_P), rel=0.15)


def test_the_variance_of_a_prompt_is_its_own_once_it_is_known():
    known = Known(np.array([0.0, 100.0, 100.0]), np.array([0.0, 50.0, 50.0]), np.array([0.0, 25.0, 29.0]))
    within, error = graded_variances(known, np.full(3, 0.01), 0.09)
    own = np.array([0.0 + 4 * 0.01, 4.0 + 4 * 0.01]) / (99 + 4)  # with four rollouts of the pool
    assert (within[0], error[0]) == pytest.approx((0.01, 0.09))
    assert within[1:] == pytest.approx(own)
    assert error[1:] == pytest.approx(own * 0.09 / (own + 100 * 0.09))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_successes_of_0_and_1_have_the_bernoulli_variance(means):
    mean_R, sums = np.array(means), Sums().plus(np.array([0.0, 1.0, 1.0]), np.zeros(3))
    known = Known(*np.zeros((3, len(means))))
    within, error = variances(mean_R, np.full(len(means), 3.0), known, sums)
    assert within + error == pytest.approx(bernoulli_variance(mean_R))
    assert within == pytest.approx(bernoulli_variance(mean_R) * 3 / 4)  # E[p (1-p)] under Beta(3 m, 3 (1-m))
    assert prior_share(sums, 0.6) == 1.0


def test_the_mass_of_the_prior_for_graded_successes():
    """The best linear estimate of a prompt's mean from n rollouts shrinks to the pool's with within / between."""
    sums = Sums(n=100.0, s=50.0, ss=30.0, graded=50.0, within=1.0, pairs=50.0)  # 0.05 in all, 0.02 within
    assert prior_share(sums, 0.6) == 1.0  # 0.02 / 0.03 is more than 0.6
    assert prior_share(sums, 2.0) == pytest.approx(0.02 / 0.03 / 2)
    assert prior_share(Sums(), 2.0) == 1.0


@given(st.lists(st.sampled_from([0.0, 0.2, 1.0, np.nan]), max_size=12))
def test_the_chance_that_eight_values_are_equal(values):
    known = [x for x in values if x == x]
    expected = sum((known.count(x) / len(known)) ** 8 for x in set(known)) if known else 1.0
    assert share_alike(values) == pytest.approx(expected)


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("format_rate", [1.0, 0.9])
def test_the_predicted_size_of_grpos_advantages(p, format_rate):
    rng = np.random.default_rng(1)
    success, form = rng.random((4000, 8)) < p, rng.random((4000, 8)) < format_rate
    rewards = success + 0.2 * form
    advantages_R = group_advantages(rewards.ravel(), np.repeat(np.arange(4000), 8))
    known, alike = Known(np.full(1, 9.0), np.zeros(1), np.zeros(1)), share_alike(form.ravel())
    predicted = grpo_square(Beta([1e7 * p], [1e7 * (1 - p)]), known, 0.0, alike)
    assert np.sqrt(predicted[0]) == pytest.approx(np.sqrt(np.mean(advantages_R**2)), rel=0.05)


def test_groups_with_graded_successes_have_variance():
    belief, seen = Beta([0.5] * 3, [0.5] * 3), np.array([0.0, 2.0, 2.0])
    known = Known(seen, np.array([0.0, 1.0, 1.0]), np.array([0.0, 0.5, 1.0]))  # unknown, graded, 0 and 1
    got = grpo_square(belief, known, 0.5, 1.0)
    assert got[:2] == pytest.approx(7 / 8, rel=0.01)
    assert got[2] < 0.75
