"""Estimates from what another policy logged: against enumeration of everything that could have been logged."""

from itertools import combinations, product
from math import comb, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc import InputError
from budgetalloc.offline.offpolicy import (
    all_within,
    doubly_robust,
    horvitz_thompson,
    mixed_within,
    self_normalised,
)

NAN = float("nan")


def mixed(p, m):
    return 1 - p**m - (1 - p) ** m if m > 1 else 0.0


def binomial(s, n, p):
    return comb(n, s) * p**s * (1 - p) ** (n - s)


def test_a_group_within_a_group_is_the_mean_over_all_its_parts():
    for n, s, m in [x for x in product(range(1, 7), repeat=3) if max(x[1:]) <= x[0]] + [(5, 0, 3), (5, 3, 0)]:
        rewards = [1] * s + [0] * (n - s)
        parts = [len(set(part)) == 2 for part in combinations(rewards, m)]
        assert mixed_within(s, n, m) == pytest.approx(np.mean(parts)), (n, s, m)


@pytest.mark.parametrize(("n", "m"), [(8, 2), (8, 5), (8, 8), (12, 7), (3, 1), (4, 0)])
@pytest.mark.parametrize("p", [0.0, 0.03, 0.5, 0.8, 1.0])
def test_a_group_within_a_group_is_unbiased(p, n, m):
    chance = [binomial(k, n, p) for k in range(n + 1)]
    assert chance @ mixed_within(np.arange(n + 1), n, m) == pytest.approx(mixed(p, m), abs=1e-12)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 50))
def test_successes_and_failures_are_alike_and_larger_groups_unknown(passed, failed, m):
    direct = mixed_within(passed, passed + failed, m)
    assert mixed_within(failed, passed + failed, m) == pytest.approx(direct, abs=1e-12, nan_ok=True)
    assert np.isnan(direct) == (m > passed + failed)


def test_rewards_of_many_values():
    """Of 3 rewards 0, 0.5, 0.5 two are equal in one of three parts: 1 - sum over values of C(k,2) / C(3,2)."""
    assert 1 - all_within([1, 2], 3, 2).sum() == pytest.approx(2 / 3)


# A tiny world, all of whose logs can be enumerated: four prompts, two of which are logged with six rollouts each.
RATES = np.array([0.1, 0.4, 0.5, 0.9])
ROLLOUTS, WANTED = 6, np.array([2, 2, 2, 2])
TRUTH = sum(mixed(p, 2) for p in RATES)
# Batches are not equally likely, so that neither are prompts.
BATCHES = dict(zip(combinations(range(4), 2), [0.3, 0.05, 0.15, 0.25, 0.05, 0.2], strict=True))
PROPENSITIES = np.array([sum(chance for batch, chance in BATCHES.items() if k in batch) for k in range(4)])


def logs():
    """Every log: its probability and the outcomes, NaN where not logged."""
    for batch, chance in BATCHES.items():
        for passed in product(range(ROLLOUTS + 1), repeat=len(batch)):
            outcomes = np.full(4, NAN)
            outcomes[list(batch)] = mixed_within(passed, ROLLOUTS, WANTED[list(batch)])
            yield chance * prod(binomial(s, ROLLOUTS, RATES[k]) for s, k in zip(passed, batch, strict=True)), outcomes


def moments(estimate):
    chances, values = zip(*((chance, estimate(outcomes)) for chance, outcomes in logs()), strict=True)
    assert sum(chances) == pytest.approx(1)
    mean = np.dot(chances, values)
    return mean, np.dot(chances, (np.array(values) - mean) ** 2)


GOOD = np.array([mixed(p, 2) for p in RATES])
WRONG = np.array([0.9, 0.0, 0.1, 0.7])
OTHER = np.array([0.2, 0.9, 0.5, 0.4])


def test_inverse_propensities_are_unbiased():
    assert moments(lambda y: horvitz_thompson(y, PROPENSITIES))[0] == pytest.approx(TRUTH)
    assert abs(moments(lambda y: horvitz_thompson(y, OTHER))[0] - TRUTH) > 0.1


def test_doubly_robust_is_unbiased_if_one_of_the_two_is_right():
    assert moments(lambda y: doubly_robust(y, PROPENSITIES, WRONG))[0] == pytest.approx(TRUTH)
    assert moments(lambda y: doubly_robust(y, OTHER, GOOD))[0] == pytest.approx(TRUTH)
    assert abs(moments(lambda y: doubly_robust(y, OTHER, WRONG))[0] - TRUTH) > 0.1


def test_a_good_model_makes_the_variance_smaller():
    plain = moments(lambda y: horvitz_thompson(y, PROPENSITIES))[1]
    good = moments(lambda y: doubly_robust(y, PROPENSITIES, GOOD))[1]
    wrong = moments(lambda y: doubly_robust(y, PROPENSITIES, WRONG))[1]
    assert good < 0.8 * plain < plain < wrong
    assert moments(lambda y: doubly_robust(y, PROPENSITIES, np.zeros(4)))[1] == pytest.approx(plain)


def test_self_normalised_is_biased_but_consistent():
    """Over one log it is biased; over many logs together its mean is the ratio of means, which is the truth here."""
    assert abs(moments(lambda y: self_normalised(y, PROPENSITIES))[0] - TRUTH) > 0.01
    rng = np.random.default_rng(0)
    chances, outcomes = zip(*logs(), strict=True)
    errors = []
    for many in (10, 1000, 100_000):
        drawn = np.array(outcomes)[rng.choice(len(chances), many, p=np.array(chances) / sum(chances))]
        together = self_normalised(drawn.ravel(), np.tile(PROPENSITIES, many)) / many
        errors.append(abs(together - TRUTH))
    assert errors[2] < 0.01
    assert errors[2] < errors[0]


def test_self_normalised_of_nothing_logged_is_unknown():
    assert np.isnan(self_normalised([NAN, NAN], [0.5, 0.5]))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mixed_within([3], [2], [1]), r"passed_G has 3 successes of 2 rollouts"),
        (lambda: mixed_within([0.5], [2], [1]), r"give integers from 0"),
        (lambda: mixed_within([1], [2], [-1]), r"give integers from 0"),
        (lambda: mixed_within([1, 1], [2, 2, 2], 1), r"shapes \[\(2,\), \(3,\), \(\)\]"),
        (lambda: horvitz_thompson([1, NAN, 1, 0], [1, 0, 0.5, 0]), r"propensities_P\[1\]=0: 50.0% of the prompts"),
    ],
)
def test_errors_name_the_argument(make, text):
    with pytest.raises(InputError, match=text):
        make()
