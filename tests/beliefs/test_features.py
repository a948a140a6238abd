"""Features of prompts: what they hold, and what is refused; known rates help a belief, and wrong ones are unlearned."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import Features


def test_rows_are_centred_and_have_a_mean_squared_norm_of_1():
    values = np.random.default_rng(0).normal(3, 5, (50, 4))
    got = Features(range(50), values).of(range(50))
    assert got.mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-6)
    assert (got**2).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)
    assert np.corrcoef(got[:, 0], values[:, 0])[0, 1] == pytest.approx(1)


def test_texts_of_one_kind_are_near_each_other():
    texts = [f"sort the list {n}" for n in range(30)] + [f"what is {n} plus {n}" for n in range(30)]
    got = Features.of_texts(range(60), texts, dimensions=8).of(range(60))
    near = got @ got.T
    assert near[:30, :30].mean() > 5 * abs(near[:30, 30:].mean()) > 0 or near[:30, 30:].mean() < 0
    again = Features.of_texts(range(60), texts, dimensions=8).of(range(60))
    assert (got == again).all()


@pytest.mark.parametrize("texts", [["same"] * 5, [""] * 5, ["one"]])
def test_texts_that_tell_nothing_are_zeros(texts):
    assert not Features.of_texts(range(len(texts)), texts).of(range(len(texts))).any()


def test_a_column_of_numbers_enters_by_rank():
    ids = list("abcde")
    one = Features.of_columns(ids, {"length": [1, 2, 3, 4, 1000]}).of(ids)
    other = Features.of_columns(ids, {"length": [10.0, 20.0, 30.0, 40.0, 50.0]}).of(ids)
    assert one.tolist() == other.tolist()
    assert (np.diff(one[:, 0]) > 0).all()


def test_a_missing_number_is_the_mean_prompts():
    got = Features.of_columns(list("abc"), {"rate": [0.1, None, 0.9]}).of(list("abc"))
    assert got[1] == pytest.approx([0.0], abs=1e-9)


def test_texts_and_flags_of_a_column_become_a_feature_each():
    features = Features.of_columns([0, 1, 2], {"source": ["x", "y", None], "hard": [True, False, True]})
    assert features.count == 4


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Features(["a"], [[np.nan]]), "values_PK of prompt 'a'"),
        (lambda: Features(["a"], [1.0]), r"shape \(1,\)"),
        (lambda: Features(["a", "a"], [[1.0], [2.0]]), "'a'"),
        (lambda: Features(["a"], np.zeros((1, 513))), "at most 512"),
        (lambda: Features.of_texts(["a"], [3]), "a text for each of 1"),
        (lambda: Features.of_texts(["a"], ["x"], dimensions=0), "dimensions=0"),
        (lambda: Features.of_columns(["a"], {}), "at least one column"),
        (lambda: Features.of_columns(["a"], {"x": [1, 2]}), "2 values for 1 prompts"),
        (lambda: Features.of_columns(["a"], {"x": [[1]]}), "numbers, texts or flags"),
        (lambda: Features.of_columns(range(300), {"x": list(map(str, range(300)))}), "300 distinct texts"),
        (lambda: Features.joined(Features(["a"], [[1]]), Features(["b"], [[1]])), "the same prompts"),
    ],
)
def test_bad_features_are_refused(call, says):
    with pytest.raises(ba.InputError, match=says):
        call()


def test_vectors_become_their_largest_principal_components():
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(80, 3)) * [5, 2, 1]
    vectors = hidden @ np.linalg.qr(rng.normal(size=(20, 20)))[0][:3] + 7
    got = Features.of_vectors(range(80), vectors, dimensions=8).of(range(80))
    assert got.shape == (80, 3)  # the others are zero
    plain = Features(range(80), hidden).of(range(80))
    assert got @ got.T == pytest.approx(plain @ plain.T, abs=1e-4)  # rotated, and nothing else
    first = Features.of_vectors(range(80), vectors, dimensions=1)
    assert abs(np.corrcoef(first.of(range(80))[:, 0], hidden[:, 0])[0, 1]) > 0.95


@pytest.mark.parametrize("vectors", [np.ones((3, 2)), np.ones(2), [[1.0, np.nan], [1.0, 2.0]]])
def test_vectors_of_another_shape_or_not_finite_are_refused(vectors):
    with pytest.raises(ba.InputError, match="vectors_PD"):
        Features.of_vectors(["a", "b"], vectors)


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


def test_right_rates_help_from_the_first_step_on(without):
    got = mean_errors(lambda rate_P, rng: rate_P)
    assert got[0] < 0.3 * without[0]  # 16 of 128 prompts were visited
    assert got[len(got) // VISITS - 1] < 0.6 * without[len(got) // VISITS - 1]
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
        ([0.5, 0.5], [8, 8, 8], r"rollouts has shape \(3,\) for 2 prompts"),
        (["a", "b"], 8, "a rate for each prompt"),
    ],
)
def test_bad_rates_are_refused(rates, rollouts, says):
    with pytest.raises(ba.InputError, match=says):
        Features.of_rates(range(2), rates, rollouts)
