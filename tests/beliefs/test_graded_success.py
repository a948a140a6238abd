"""Graded success: the spread of a prompt's successes, the values that use it, and rescaling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Beta
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.graded_success import rescaled, spread

BINARY = st.lists(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 1.0, np.nan])), max_size=12), max_size=8)
SETTINGS = st.sampled_from([{}, {"discount": 0.7}, {"discount": 0.9, "idle": 0.98}, {"prior": (0.3, 2.0)}])


def learned(steps, **settings_):
    estimator = BetaEstimator(**settings_)
    for rows in steps:
        estimator.observe([x for x, _ in rows], [u for _, u in rows])
        estimator.tick()
    return estimator


@given(BINARY, SETTINGS)
def test_successes_of_0_and_1_have_a_spread_of_exactly_1(steps, settings_):
    belief = learned(steps, **settings_).belief(range(7))
    assert belief.spread_P.tolist() == [1.0] * 7
    plain = Beta(belief.alpha_P, belief.beta_P)
    for value in (ba.mixed_group, ba.variance, ba.success_gain):
        assert (value(belief, range(9)) == value(plain, range(9))).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.sampled_from([(0.5, 0.5), (1.0, 3.0)]))
def test_the_spread_is_that_of_the_successes_and_of_a_binary_prior(successes, prior):
    estimator = BetaEstimator(prior=prior)
    estimator.observe(["a"] * len(successes), successes)
    estimator.tick()
    belief, n = estimator.belief(["a"]), len(successes) + sum(prior)
    mean = (prior[0] + sum(successes)) / n
    square = (prior[0] + sum(u * u for u in successes)) / n
    assert belief.mean[0] == pytest.approx(mean)
    assert belief.spread_P[0] == pytest.approx((square - mean**2) / (mean * (1 - mean)), abs=1e-9)
    assert 0 <= belief.spread_P[0] <= 1


@pytest.mark.parametrize("reward", [0.2, 0.5, 0.7])
def test_a_prompt_with_constant_rewards_is_predicted_not_to_be_mixed(reward):
    policy = ba.adaptive(seed=0)
    policy.observe(["same"] * 64 + ["half"] * 64 + ["failed"] * 64, [reward] * 64 + [0, 1] * 32 + [0] * 64)
    belief = policy.belief(["same", "half", "failed"])
    mixed_P = ba.mixed_group(belief, [8])[:, 0]
    assert mixed_P[0] < 0.05 < 0.9 < mixed_P[1]
    weight_P = np.sqrt(belief.moment(1, 2) * belief.spread_P)
    assert weight_P[0] < 1.2 * weight_P[2]  # as low as that of a prompt that always fails
    total_P = np.zeros(3)
    for seed in range(20):
        one = ba.adaptive(seed=seed)
        one.load_state_dict(policy.state_dict() | {"seed": seed})
        total_P += one.allocate(["same", "half", "failed"], ba.Budget(32, floor=0, min_group=1))
    assert total_P[0] < 0.3 * total_P[1]


def test_the_spread_goes_with_the_belief_and_with_a_draw():
    belief = Beta([1.0, 2.0], [3.0, 4.0], [0.25, 1.0])
    assert belief.take([1, 0, 0]).spread_P.tolist() == [1, 0.25, 0.25]
    assert belief.tilt(1, 2).spread_P.tolist() == [0.25, 1]
    drawn = belief.sample(np.random.default_rng(0))
    assert drawn.spread_P.tolist() == [0.25, 1]
    assert ba.variance(drawn, [2]).ravel() == pytest.approx(drawn.mean * (1 - drawn.mean) / 2 * [0.25, 1])
    # The chance of a mixed group and the rise of p, which is (1-p) times the variance: a quarter each.
    assert ba.success_gain(belief, [4])[0] == pytest.approx(ba.success_gain(Beta([1.0], [3.0]), [4])[0] / 16)
    assert ba.hit(belief, [4]).tolist() == ba.hit(Beta([1.0, 2.0], [3.0, 4.0]), [4]).tolist()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.01, 1), st.floats(0, 1))
def test_rescaled_evidence_is_that_of_rescaled_successes(successes, scale, share):
    """When a learned range grows, the new successes lie in [0, 1]."""
    shift = share * (1 - scale)
    rows = [("a", u) for u in successes[::2]] + [("b", u) for u in successes[1::2]]
    steps = [rows, rows[:1], [("c", successes[0])]]
    for settings_ in ({"discount": 0.8, "idle": 0.9}, {}):
        got = learned(steps, **settings_)
        got.rescale(scale, shift)
        expected = learned([[(x, scale * u + shift) for x, u in rows_] for rows_ in steps], **settings_)
        one, other = got.state_dict(), expected.state_dict()
        for name in ("evidence", "graded", "earned"):
            np.testing.assert_allclose(one[name], other[name], atol=1e-9)
        assert got.step == expected.step


@given(
    st.one_of(
        st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=20),
        st.tuples(st.floats(0, 1), st.integers(1, 20)).map(lambda given: [given[0]] * given[1]),
    ),
    st.floats(0.01, 100),
    st.floats(-50, 50),
)
def test_successes_of_0_and_1_and_equal_ones_are_clipped_exactly(successes, scale, shift):
    """When a learned range shrinks, each new success is clipped to [0, 1]."""
    got, expected = learned([[("a", u) for u in successes]]), learned([])
    got.rescale(scale, shift)
    expected.observe(["a"] * len(successes), np.clip(scale * np.array(successes) + shift, 0, 1))
    for name in ("evidence", "graded"):
        np.testing.assert_allclose(got.state_dict()[name], expected.state_dict()[name], atol=1e-6)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(0.01, 100), st.floats(-50, 50))
def test_any_new_scale_leaves_evidence_that_is_possible(successes, scale, shift):
    estimator = learned([list(zip("aabbccdde", successes, strict=False))] * 3)
    estimator.rescale(scale, shift)
    again = BetaEstimator()
    again.load_state_dict(estimator.state_dict())
    belief = again.belief(["a", "b", "e"])
    assert ((belief.spread_P >= 0) & (belief.spread_P <= 1)).all()


def one(*values):
    return tuple(np.array([value]) for value in values)


def test_the_spread_is_clipped_at_0():
    assert spread(*one(1.0, 1.0, 10.0)).tolist() == [0]
    assert spread(*one(1.0, 3.0, 0.3)) == pytest.approx(0.6)  # 1 - 0.3 * 4 / 3


@pytest.mark.parametrize(
    ("sums", "scale", "shift", "expected"),
    [
        ((2.5, 1.5, 0.25), 0.4, 0.3, (2.2, 1.8, 0.88)),  # 1, 1, 0.5, 0 -> 0.7, 0.7, 0.5, 0.3
        ((3.0, 1.0, 0.0), 2.0, 0.0, (3.0, 1.0, 0.0)),  # 2, 2, 2, 0: each is clipped, and not their sum
        ((3.0, 1.0, 0.0), 1.0, -1.0, (0.0, 4.0, 0.0)),
        ((2.0, 2.0, 1.5), 1.0, 0.0, (2.0, 2.0, 1.0)),  # at most that of equal successes
        ((0.3, 0.2, 0.1), 1.0, 0.0, (0.3, 0.2, 0.1)),
        ((0.0, 0.0, 0.0), 0.5, 0.25, (0.0, 0.0, 0.0)),
        ((2.0, 2.0, 0.0), 2.0, -0.5, (2.0, 2.0, 0.0)),
    ],
)
def test_sums_after_a_new_scale_by_hand(sums, scale, shift, expected):
    with np.errstate(all="raise"):
        assert np.ravel(rescaled(*one(*sums), scale, shift)) == pytest.approx(expected)
