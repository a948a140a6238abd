"""Known success rates as features: right ones help from the first step on, and wrong ones are unlearned."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import Features

SEEDS, VISITS = 4, 10


def errors(known, seed, prompts=128, at_once=16, group=4):
    """The mean squared error of beliefs after each step; every prompt is visited ten times, `at_once` of them a step.

    Args:
        known: What the features say of the prompts' true rates and a generator; None for no features.
    """
    rng = np.random.default_rng(seed)
    rate_P = rng.beta(0.7, 0.7, prompts)
    features = None
    if known is not None:  # as an earlier run with 16 rollouts of each prompt would estimate it
        features = Features.of_rates(range(prompts), rng.binomial(16, known(rate_P, rng)) / 16, 16)
    estimator, outcomes = ba.TrackingEstimator(features), np.random.default_rng(seed + 100)
    found = []
    for _ in range(VISITS):
        for ids_P in outcomes.permutation(prompts).reshape(-1, at_once):
            ids_R = ids_P.repeat(group)
            estimator.observe(ids_R, (outcomes.random(len(ids_R)) < rate_P[ids_R]).astype(float))
            estimator.tick()
            found.append(np.mean((estimator.belief(range(prompts)).mean - rate_P) ** 2))
    return np.array(found)


def mean_errors(known):
    return np.mean([errors(known, seed) for seed in range(SEEDS)], axis=0)


@pytest.fixture(scope="module")
def without():
    return mean_errors(None)


def test_rates_that_say_the_opposite_cost_nothing_after_ten_visits(without):
    got = mean_errors(lambda rate_P, rng: 1 - rate_P)
    assert got[-1] < without[-1]
    assert got[0] < without[0]  # the direction is learned at once


def test_right_rates_help_from_the_first_step_on(without):
    got = mean_errors(lambda rate_P, rng: rate_P)
    assert got[0] < 0.3 * without[0]  # 16 of 128 prompts were visited
    assert got[len(got) // VISITS - 1] < 0.6 * without[len(got) // VISITS - 1]
    assert got[-1] < without[-1]


def test_rates_of_a_weaker_model_help(without):
    got = mean_errors(lambda rate_P, rng: rate_P**3)
    assert got[0] < 0.4 * without[0]
    assert got[-1] < without[-1]


@pytest.mark.parametrize("known", [lambda rate_P, rng: rng.permutation(rate_P), lambda rate_P, rng: 0 * rate_P + 0.5])
def test_rates_that_tell_nothing_cost_nearly_nothing(known, without):
    got = mean_errors(known)
    assert got[-1] < 1.15 * without[-1]
    assert got.mean() < 1.1 * without.mean()


def test_a_rate_of_few_rollouts_is_nearer_to_the_mean():
    got = Features.of_rates(range(4), [1.0, 1.0, 0.0, 0.0], [1, 64, 1, 64]).of(range(4)).ravel()
    assert got[2] < 0 < got[0] < got[1]
    assert got[0] == pytest.approx(-got[2])
    assert got[3] < got[2]


@pytest.mark.parametrize(("rates", "rollouts"), [([1, 0, None], 8), ([1, 0, 0.5], [8, 8, 0])])
def test_prompts_without_a_rate_have_the_mean_and_are_marked(rates, rollouts):
    features = Features.of_rates(list("abc"), rates, rollouts)
    assert features.count == 2
    got = features.of(list("abc"))
    assert got[2, 0] == pytest.approx(0, abs=1e-6)
    assert got[0, 1] == got[1, 1] != got[2, 1]
    assert Features.of_rates(list("ab"), [1, 0]).count == 1


@pytest.mark.parametrize("rates", [[0, 0, 0], [1, 1, 1], [None, None, None]])
def test_equal_rates_tell_nothing(rates):
    assert not Features.of_rates(range(3), rates).of(range(3)).any()


@pytest.mark.parametrize(
    ("rates", "rollouts", "says"),
    [
        ([0.5, 1.5], 8, "prompt 1 is 1.5: give a rate in"),
        ([-0.1, 0.5], 8, "prompt 0 is -0.1"),
        ([0.5, 0.5], [8, -1], "rollouts of prompt 1 is -1"),
        ([0.5, 0.5], float("inf"), "rollouts of prompt 0 is inf"),
        ([0.5], 8, r"shape \(1,\).* for 2 prompts"),
        ([0.5, 0.5], [8, 8, 8], r"rollouts \(3,\) for 2 prompts"),
        (["a", "b"], 8, "a rate for each prompt"),
    ],
)
def test_bad_rates_are_refused(rates, rollouts, says):
    with pytest.raises(ba.InputError, match=says):
        Features.of_rates(range(2), rates, rollouts)
