"""The reward expected of a rollout is in the rewards' units, and never looks at the rollout's own group.

The variance within a prompt is the true one, and the predicted size of GRPO's advantages is GRPO's.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.expected_reward import (
    Known,
    Line,
    Sums,
    bernoulli_variance,
    deviations,
    grpo_square,
    pool_variances,
    prior_share,
    reward_line,
    share_alike,
    variances,
)
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.policies.group_advantages import group_advantages

rollouts = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, 0.5, np.nan]), st.floats(-5, 5)), min_size=1, max_size=20
)


def columns(rows):
    group, success, rewards = (np.array(x) for x in zip(*rows, strict=True))
    return np.unique(group, return_inverse=True)[1], success, np.where(np.isnan(success), np.nan, rewards)


@given(rollouts, st.floats(-5, 5))
def test_free_of_the_own_group(rows, other):
    group_R, success_R, rewards_R = columns(rows)
    earlier = Sums(4.0, 2.0, 3.0, 2.0, 2.5, 5.0)
    before = reward_line(success_R, rewards_R, group_R, earlier)
    own = group_R == 0
    changed = reward_line(np.where(own, 1 - success_R, success_R), np.where(own, other, rewards_R), group_R, earlier)
    np.testing.assert_allclose(changed.at(0.3)[own], before.at(0.3)[own], atol=1e-9)
    np.testing.assert_allclose(changed.around_R[own], before.around_R[own], atol=1e-6)


@given(st.floats(-3, 3), st.floats(-3, 3), st.lists(st.booleans(), min_size=3, max_size=12))
def test_a_total_that_is_a_line_through_success(offset, slope, solved):
    success_R = np.array([0.0, 1.0, *solved])
    rewards_R = offset + slope * success_R
    earlier = Sums.of(np.array([0.0, 1.0]), np.array([offset, offset + slope]))
    mean_R = np.linspace(0, 1, len(success_R))
    line = reward_line(success_R, rewards_R, np.arange(len(success_R)), earlier, jump=slope)
    np.testing.assert_allclose(line.at(mean_R), offset + slope * mean_R, atol=1e-6)


@given(st.floats(-3, 3), st.floats(0.1, 3))
def test_a_wrong_expectation_of_the_slope_is_forgotten(slope, jump):
    success_R = np.tile([0.0, 1.0], 200)
    line = reward_line(success_R, slope * success_R, np.arange(400), Sums(), jump)
    assert line.slope_R == pytest.approx(slope, abs=0.02 * (1 + abs(slope) + jump))


@pytest.mark.parametrize("groups", range(2, 8))
def test_the_variance_around_a_line_is_not_below_0_by_rounding(groups):
    success_R = np.array([1.0, 0.0] * groups)
    for offset, slope in [(0.3, 0.6), (0.1, 0.7), (0.2, 0.6), (0.1, 0.6)]:
        rewards_R = offset + slope * success_R
        assert (reward_line(success_R, rewards_R, np.arange(2 * groups) // 2, Sums(), slope).around_R >= 0.0).all()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-2, 3), st.sampled_from([0, 0.5, 1, np.nan])), min_size=1))
def test_the_line_is_a_ridge_regression_on_the_other_prompts(rows):
    """By hand: the slope minimises sum (r - mean - slope (s - mean))^2 + (slope - jump)^2 / 4."""
    ids, rewards, success = (list(x) for x in zip(*rows, strict=True))
    group_R = np.unique(ids, return_inverse=True)[1]
    line = reward_line(np.array(success, dtype=float), np.array(rewards), group_R, Sums(), jump=2.0)
    for row in range(len(rows)):
        others = np.array([(s, r) for x, r, s in rows if x != ids[row] and s == s])
        if not len(others):
            assert np.isnan(line.start_R[row])
            continue
        s, r = others.T
        slope = (np.sum((s - s.mean()) * (r - r.mean())) + 0.25 * 2.0) / (np.sum((s - s.mean()) ** 2) + 0.25)
        assert line.slope_R[row] == pytest.approx(slope, abs=1e-6)
        assert line.start_R[row] == pytest.approx(r.mean() - slope * s.mean(), abs=1e-6)
        rest = np.mean((r - line.start_R[row] - slope * s) ** 2)
        assert line.around_R[row] == pytest.approx(rest, abs=1e-6)


@pytest.mark.parametrize("state", [None, {}, {"n": 1}, {**Sums().state_dict(), "s": float("inf")}])
def test_a_damaged_state(state):
    with pytest.raises(ba.StateError):
        Sums().load_state_dict(state)


def test_the_deviation_is_in_the_units_of_the_reward():
    exact = Line(np.ones(2), np.full(2, 3.0), np.zeros(2))
    assert exact.deviation(np.array([0.25, 0.04])).tolist() == pytest.approx([1.5, 0.6])
    around = Line(np.zeros(2), np.full(2, -3.0), np.array([0.0, 4.0]))
    assert around.deviation(np.array([0.25, 0.25])) == pytest.approx([1.5, 2.5])


def test_sums_by_hand():
    none, some = Sums(), Sums.of(np.array([0.0, 0.5, 1.0, 1.0]), np.array([1.0, 2.0, 3.0, 5.0]))
    assert (none.mean_success, pool_variances(none)) == (0.5, (0.0, 0.0))
    assert (some.mean_success, some.graded) == (2.5 / 4, 1)
    assert pool_variances(some)[0] == pytest.approx(np.var([0.0, 0.5, 1.0, 1.0]))  # nothing tells prompts apart
    assert Sums.of(np.array([0.25]), np.array([1.0])).mean_success == 0.25
    faded = some.plus(Sums(), kept=0.9)
    assert (faded.n, faded.rr) == pytest.approx((0.9 * 4, 0.9 * 39))
    both = some.plus(Sums(n=1.0, within=0.5, pairs=2.0))
    assert (both.n, both.within, both.pairs) == (5, 0.5, 2)


def test_a_saved_state_loads():
    whole, loaded = Sums(*map(float, range(1, 12))), Sums()
    loaded.load_state_dict(whole.state_dict())
    assert loaded == whole


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
        sums = sums.plus(Sums(within=within, pairs=pairs)).plus(Sums.of(success_R, success_R))
        estimator.observe(at_R, success_R)
        estimator.tick()
    within, between = pool_variances(sums)
    assert within == pytest.approx(true, rel=0.08)
    assert between == pytest.approx(np.var(mean_P), rel=0.15)


def test_the_variance_of_a_prompt_is_its_own_once_it_is_known():
    known = Known(np.array([0.0, 100.0, 100.0]), np.array([0.0, 50.0, 50.0]), np.array([0.0, 25.0, 29.0]))
    pool = Sums(n=1000.0, s=500.0, ss=350.0, graded=1000.0, within=10.0, pairs=1000.0)  # 0.01 within, 0.09 between
    within, error = variances(np.full(3, 0.5), np.ones(3), known, pool)
    own = np.array([0.0 + 4 * 0.01, 4.0 + 4 * 0.01]) / (99 + 4)  # with four rollouts of the pool
    assert (within[0], error[0]) == pytest.approx((0.01, 0.09))
    assert within[1:] == pytest.approx(own)
    assert error[1:] == pytest.approx(own * 0.09 / (own + 100 * 0.09))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_successes_of_0_and_1_have_the_bernoulli_variance(means):
    mean_R, sums = np.array(means), Sums.of(np.array([0.0, 1.0, 1.0]), np.zeros(3))
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
