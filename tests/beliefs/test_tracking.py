"""The estimator that follows the model: how close, in pools of any size, with features and with useless ones; and one
step of its regression."""

import numpy as np
import pytest
from false_alarms import beta, moving  # in benchmarks
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import budgetalloc as ba
from budgetalloc import Beta
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.beliefs.tracking import fitted, left_out_means
from budgetalloc.testing import same_state

STEPS, ROLLOUTS = 120, 256


def rising(prompts, rng):
    """Every rate rises from 0.05 to 0.95."""
    return np.repeat(np.linspace(0.05, 0.95, STEPS)[:, None], prompts, axis=1), None


def skills(prompts, rng):
    """20 skills, each of which is learned within 30 steps at its own time, half of them never."""
    skill_P, begin = rng.integers(0, 20, prompts), rng.uniform(0, 2 * STEPS, 20)
    return 0.02 + 0.96 * np.clip((np.arange(STEPS)[:, None] - begin[skill_P]) / 30, 0, 1), skill_P


def still(prompts, rng):
    """Rates that do not change."""
    return np.repeat(rng.beta(0.5, 0.5, prompts)[None], STEPS, axis=0), None


def follow(estimator, rate_TP, rng):
    """Means over the steps after the first 20: squared error of beliefs, last bias, lean of the last 60 advantages."""
    prompts, errors, biases, advantages = rate_TP.shape[1], [], [], []
    for at, rate_P in enumerate(rate_TP):
        got = rng.permutation(prompts)[:ROLLOUTS] if prompts > ROLLOUTS else np.arange(ROLLOUTS) % prompts
        mean_P = estimator.belief(range(prompts)).mean
        success_R = (rng.random(ROLLOUTS) < rate_P[got]).astype(float)
        ids_G, group_R = np.unique(got, return_inverse=True)
        baseline_R = estimator.baseline_belief(ids_G.tolist(), group_R, success_R)
        advantage_R = ba.group_advantages(success_R, got.tolist(), "posterior", "none", belief_R=baseline_R)
        if at >= 20:
            errors.append(np.mean((mean_P - rate_P) ** 2))
            biases.append(np.mean(mean_P - rate_P))
            advantages.append((advantage_R.mean(), np.mean(advantage_R**2)))
        estimator.observe(got.tolist(), success_R)
        estimator.tick()
    mean, square = np.mean(advantages[-60:], axis=0)
    return np.mean(errors), np.mean(biases[-5:]), mean / np.sqrt(square)


def plain():
    return ba.BetaEstimator(prior=(0.3, 0.3), idle=0.98)


@pytest.mark.parametrize("prompts", [16, 64, 512, 2000, 10_000])
def test_beliefs_keep_up_with_a_rising_rate_in_pools_of_any_size(prompts):
    rng = np.random.default_rng(0)
    _, bias, lean = follow(ba.TrackingEstimator(), rising(prompts, rng)[0], rng)
    assert abs(bias) < 0.05
    assert abs(lean) < 0.1


@pytest.mark.parametrize(("prompts", "share"), [(64, 0.2), (512, 0.4), (2000, 0.75)])
def test_the_error_is_a_share_of_a_beta_estimators_where_skills_rise(prompts, share):
    errors = []
    for estimator in (ba.TrackingEstimator(), plain()):
        rng = np.random.default_rng(1)
        errors.append(follow(estimator, skills(prompts, rng)[0], rng)[0])
    assert errors[0] < share * errors[1]


@pytest.mark.parametrize("later", [0, 8])
def test_evidence_of_prompts_that_are_not_visited_moves_with_the_others(later):
    estimator = ba.TrackingEstimator()
    estimator.observe(np.repeat(range(40), 8), np.tile(np.arange(8) < 4, 40))
    estimator.tick()
    for _ in range(6):
        estimator.observe(np.repeat(range(20), 8), np.tile(np.arange(8) < later, 20))
        estimator.tick()
    unvisited = estimator.belief(range(20, 40)).mean
    assert (abs(unvisited - later / 8) < 0.05).all()


@pytest.mark.parametrize("prompts", [512, 2000])
def test_rates_that_stand_still_cost_nothing(prompts):
    errors = []
    for estimator in (ba.TrackingEstimator(), plain()):
        rng = np.random.default_rng(2)
        errors.append(follow(estimator, still(prompts, rng)[0], rng)[0])
    assert errors[0] < 1.2 * errors[1]  # what forgetting costs, where nothing has to be forgotten


def brier_scores(estimator, make, prompts, rollouts, steps=150):
    """Of the belief, of one running rate for all prompts and of the truth, shape (3, steps), before each step."""
    rng, passed, tried = np.random.default_rng(1), 0.5, 1.0
    rate_of, scores = make(prompts, rng), []
    for at in range(steps):
        got = rng.integers(0, prompts, rollouts)
        rate_R = rate_of(at)[got]
        success_R = (rng.random(rollouts) < rate_R).astype(float)
        for predicted_R in (estimator.belief(got.tolist()).mean, passed / tried, rate_R):
            scores.append(np.mean((predicted_R - success_R) ** 2))
        passed, tried = 0.9 * passed + success_R.sum(), 0.9 * tried + rollouts
        estimator.observe(got.tolist(), success_R)
        estimator.tick()
    return np.reshape(scores, (steps, 3)).T


POOLS = pytest.mark.parametrize(
    ("make", "prompts", "rollouts"),
    [
        (beta(8, 12), 1000, 128),
        (beta(8, 12), 8000, 128),
        (beta(20, 30), 8000, 128),
        (beta(1, 3), 8000, 128),
        (beta(0.3, 0.3), 96, 256),
        (beta(8, 12), 96, 256),
        (moving, 96, 256),
        (moving, 1209, 1024),
        (moving, 2080, 256),
    ],
)


@POOLS
def test_a_belief_is_never_worse_than_one_rate_and_close_to_the_truth_where_prompts_return(make, prompts, rollouts):
    own, one, truth = brier_scores(ba.TrackingEstimator(), make, prompts, rollouts)
    early, late = slice(0, 30), slice(30, None)
    assert own[early].mean() < 1.01 * one[early].mean()
    assert own[late].mean() < 1.01 * one[late].mean()
    if rollouts > 0.8 * prompts:
        assert own[late].mean() < 1.08 * truth[late].mean()


@POOLS
def test_the_defaults_belief_is_near_one_rate_where_prompts_are_alike_and_near_the_truth_where_they_return(
    make, prompts, rollouts
):
    """It counts evidence and learns no prior, so that the bounds are wider than those of tracked beliefs."""
    own, one, truth = brier_scores(ba.adaptive().estimator, make, prompts, rollouts)
    late = slice(30, None)
    assert own[late].mean() < 1.16 * one[late].mean()
    if rollouts > 0.8 * prompts:
        assert own[late].mean() < 1.14 * truth[late].mean()


@pytest.mark.parametrize("others", [0, 100])
@pytest.mark.parametrize("make", [ba.TrackingEstimator, lambda: ba.adaptive().estimator], ids=["tracked", "default"])
def test_a_prompt_that_failed_a_hundred_times_and_then_passes_is_believed_after_twenty_visits(others, make):
    rng, estimator = np.random.default_rng(1), make()
    rate_P = rng.random(others)
    for success in (0.0,) * 100 + (1.0,) * 20:
        estimator.observe(["x", *range(others)], [success, *(rng.random(others) < rate_P)])
        estimator.tick()
    assert estimator.belief(["x"]).mean[0] > 0.5


def test_several_observations_of_a_step_are_one_visit():
    whole, parts = ba.TrackingEstimator(), ba.TrackingEstimator()
    for _ in range(5):
        whole.observe(["a"] * 4, [1, 0, 0, 0])
        for success in (1, 0, 0, 0):
            parts.observe(["a"], [success])
        whole.tick()
        parts.tick()
    assert parts.belief(["a"]).mass == pytest.approx(whole.belief(["a"]).mass, rel=0.1)


def test_features_that_tell_are_used_and_shuffled_ones_do_no_harm():
    errors = {}
    for name in ("none", "skill", "shuffled"):
        rng = np.random.default_rng(3)
        rate_TP, skill_P = skills(2000, rng)
        shown_P = np.random.default_rng(9).permutation(skill_P) if name == "shuffled" else skill_P
        features = None if name == "none" else ba.Features(range(2000), np.eye(20)[shown_P])
        errors[name] = follow(ba.TrackingEstimator(features), rate_TP, rng)[0]
    assert errors["skill"] < 0.25 * errors["none"]
    assert errors["shuffled"] < 1.1 * errors["none"]


steps = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 1.0, 0.5, None])), max_size=8), min_size=1, max_size=8
)


@given(steps=steps, features=st.booleans())
@settings(deadline=None, max_examples=60)
def test_beliefs_are_proper_and_a_saved_state_goes_on_to_the_bit(steps, features, tmp_path_factory):
    def make():
        return ba.TrackingEstimator(ba.Features(range(6), np.arange(12.0).reshape(6, 2) % 5) if features else None)

    estimator, path = make(), tmp_path_factory.mktemp("state") / "state.npz"
    for step in steps:
        estimator.observe([x for x, _ in step], [u for _, u in step])
        estimator.tick()
        belief = estimator.belief([*range(6), 0])
        assert (belief.alpha_P > 0).all()
        assert (belief.beta_P > 0).all()
        assert (belief.spread_P >= 0).all()
        assert belief.alpha_P[0] == belief.alpha_P[-1]
    save_state(path, estimator.state_dict())
    twin = make()
    twin.load_state_dict(load_state(path)[0])
    assert same_state(estimator.state_dict(), twin.state_dict())
    for each in (estimator, twin):
        each.observe([0, 1, 1], [1.0, 0.0, 0.25])
        each.tick()
    assert same_state(estimator.state_dict(), twin.state_dict())


def test_graded_successes_show_in_the_spread():
    estimator = ba.TrackingEstimator()
    for _ in range(5):
        estimator.observe(["half"] * 8 + ["coin"] * 8, [0.5] * 8 + [0, 1] * 4)
        estimator.tick()
    belief = estimator.belief(["half", "coin"])
    assert belief.spread_P[0] < 0.5
    assert belief.spread_P[1] > 0.9
    assert belief.mean == pytest.approx([0.5, 0.5], abs=0.05)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"beliefs": "beta 3"}, "expected 'tracking 3, 0 features': it was written by another estimator"),
        ({"beliefs": "tracking 2, 1 features"}, "expected 'tracking 3, 0 features'"),
        ({"evidence": np.full((5, 2, 3), np.nan)}, "finite numbers"),
        ({"odds": [1.0, 0.0]}, "odds=0"),
        ({"last": [2, 0]}, "steps 0 to 1"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, says):
    estimator = ba.TrackingEstimator()
    estimator.observe(["a", "b"], [1, 0])
    estimator.tick()
    before = estimator.state_dict()
    with pytest.raises(ba.StateError, match=says):
        estimator.load_state_dict({**before, **change})
    assert same_state(estimator.state_dict(), before)


def a_step(seed, prompts=40, features=3):
    rng = np.random.default_rng(seed)
    x_GK = np.column_stack([np.ones(prompts), rng.normal(size=(prompts, features))])
    belief_G = Beta(rng.uniform(0.5, 8, prompts), rng.uniform(0.5, 8, prompts))
    trials_G = rng.integers(1, 9, prompts).astype(float)
    return x_GK, belief_G, rng.binomial(trials_G.astype(int), 0.7).astype(float), trials_G


@pytest.mark.parametrize("seed", range(5))
def test_the_move_maximises_the_penalised_likelihood(seed):
    x_GK, belief_G, successes_G, trials_G = a_step(seed)
    precision = np.diag([0.5, 2.0, 2.0, 2.0])
    share_G = 1 / (1 + trials_G / (belief_G.alpha_P + belief_G.beta_P))

    def loss(move):
        logit = np.log(belief_G.alpha_P / belief_G.beta_P) + x_GK @ move
        likelihood = share_G * (successes_G * logit - trials_G * np.logaddexp(0, logit))
        return -likelihood.sum() + move @ precision @ move / 2

    best = minimize(loss, np.zeros(4), tol=1e-10).x
    move, after = fitted(x_GK, belief_G, successes_G, trials_G, precision)
    assert move == pytest.approx(best, abs=2e-3)
    assert (np.linalg.eigvalsh(after - precision) > 0).all()  # outcomes only add information


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_one_sided_outcomes_move_a_belief_far_but_not_without_end(outcome):
    belief_G = Beta(np.full(50, 0.3), np.full(50, 0.3))
    move, _ = fitted(np.ones((50, 1)), belief_G, np.full(50, 8 * outcome), np.full(50, 8.0), np.eye(1) / 4)
    assert np.isfinite(move).all()
    assert 2 < abs(move[0]) < 10
    assert (move[0] > 0) == bool(outcome)


@given(seed=st.integers(0, 10**6), prompt=st.integers(0, 39))
@settings(max_examples=40, deadline=None)
def test_no_mean_depends_on_the_prompts_own_outcomes(seed, prompt):
    x_GK, belief_G, successes_G, trials_G = a_step(seed)
    before = left_out_means(x_GK, belief_G, successes_G, trials_G, np.eye(4))
    changed_G = successes_G.copy()
    changed_G[prompt] = trials_G[prompt] - changed_G[prompt]
    after = left_out_means(x_GK, belief_G, changed_G, trials_G, np.eye(4))
    assert after[prompt] == before[prompt]
    if changed_G[prompt] != successes_G[prompt]:
        assert (after != before).any()  # the others do depend on it


def test_the_mean_of_a_steps_only_prompt_is_that_of_its_belief():
    belief_G = Beta(np.array([1.0]), np.array([3.0]))
    assert left_out_means(np.ones((1, 2)), belief_G, np.array([4.0]), np.array([4.0]), np.eye(2)).tolist() == [0.25]
