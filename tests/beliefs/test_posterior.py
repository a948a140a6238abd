"""Beliefs: closed forms against quadrature and draws."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from budgetalloc import Beta, InputError, Point
from budgetalloc.beliefs.posterior import check_belief, check_counts

PARAMETERS = [(0.5, 0.5), (1.0, 1.0), (0.5, 8.5), (3.2, 1.7), (40.0, 2.5)]
COUNTS = [0, 1, 2, 3, 7, 16]
positive = st.floats(0.05, 200.0)


def expectation(f, a, b):
    """E[f(p)] under Beta(a, b) by quadrature; the algebraic weights take care of the poles at 0 and 1."""
    norm, _ = integrate.quad(lambda p: 1.0, 0, 1, weight="alg", wvar=(a - 1, b - 1), epsabs=0, epsrel=1e-10)
    total, _ = integrate.quad(f, 0, 1, weight="alg", wvar=(a - 1, b - 1), epsabs=0, epsrel=1e-10)
    return total / norm


@pytest.mark.parametrize(("a", "b"), PARAMETERS)
def test_beta_against_quadrature(a, b):
    belief = Beta([a], [b])
    for at, n in enumerate(COUNTS):
        assert belief.all_pass(COUNTS)[0, at] == pytest.approx(expectation(lambda p, n=n: p**n, a, b), rel=1e-8)
        assert belief.all_fail(COUNTS)[0, at] == pytest.approx(expectation(lambda p, n=n: (1 - p) ** n, a, b), rel=1e-8)
    for i, j in [(0, 0), (1, 0), (1, 1), (1, 2), (3, 0), (2, 4)]:
        exact = expectation(lambda p, i=i, j=j: p**i * (1 - p) ** j, a, b)
        assert belief.moment(i, j)[0] == pytest.approx(exact, rel=1e-8)
    assert belief.mean[0] == pytest.approx(stats.beta.mean(a, b))
    assert belief.var[0] == pytest.approx(stats.beta.var(a, b))


@given(positive, positive, st.integers(0, 4), st.integers(0, 4), st.integers(0, 9))
@settings(max_examples=200, deadline=None)
def test_tilt_identity(a, b, i, j, n):
    """E[p^i q^j p^n] = moment(i, j) * E_tilted[p^n], and the same for failures."""
    belief = Beta([a], [b])
    tilted, weight = belief.tilt(i, j), belief.moment(i, j)[0]
    assert weight * tilted.all_pass([n])[0, 0] == pytest.approx(belief.moment(i + n, j)[0], rel=1e-9)
    assert weight * tilted.all_fail([n])[0, 0] == pytest.approx(belief.moment(i, j + n)[0], rel=1e-9)


def test_counts_need_not_be_a_range():
    belief = Beta([0.5, 3.0], [2.0, 1.0])
    full = belief.all_pass(np.arange(20))
    assert (belief.all_pass([7, 2, 19]) == full[:, [7, 2, 19]]).all()
    assert (belief.all_pass(np.arange(5, 9)) == full[:, 5:9]).all()
    for counts in ([2, 0, 1], [2, 1, 0], [0, 2, 2], [0, 1, 3, 3]):  # as many as there are counts below the largest
        assert (belief.all_pass(counts) == full[:, counts]).all()
    assert belief.all_pass(np.arange(0)).shape == (2, 0)
    assert belief.all_fail(3).shape == (2, 1)


def test_point():
    p = np.array([0.0, 0.3, 1.0])
    belief = Point(p)
    assert (belief.mean == p).all()
    assert (belief.var == 0).all()
    assert belief.all_pass([0, 1, 3]) == pytest.approx(np.stack([p**0, p, p**3], axis=1))
    assert belief.all_fail([0, 2]) == pytest.approx(np.stack([p**0, (1 - p) ** 2], axis=1))
    assert belief.moment(1, 2) == pytest.approx(p * (1 - p) ** 2)
    assert belief.tilt(1, 2) is belief


def test_sample_is_deterministic_and_follows_the_belief():
    belief = Beta(np.full(50_000, 2.0), np.full(50_000, 5.0))
    draw = belief.sample(np.random.default_rng(7))
    assert isinstance(draw, Point)
    assert (draw.p_P == belief.sample(np.random.default_rng(7)).p_P).all()
    assert (draw.p_P != belief.sample(np.random.default_rng(8)).p_P).any()
    assert stats.kstest(draw.p_P, stats.beta(2, 5).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: Beta([1.0, 0.0], [1.0, 1.0]), r"alpha_P=.*0\.0.*: must be one-dimensional and positive and finite"),
        (lambda: Beta([1.0], [-2.0]), r"beta_P=.*-2\.0"),
        (lambda: Beta([np.nan], [1.0]), r"alpha_P=.*nan"),
        (lambda: Beta([1.0], [np.inf]), r"beta_P=.*inf"),
        (lambda: Beta([1.0, 1.0], [1.0]), r"beta_P has 1 entries for 2 prompts"),
        (lambda: Beta([[1.0]], [[1.0]]), r"alpha_P=\[\[1.0\]\]"),
        (lambda: Point([0.5, 1.5]), r"p_P=.*1\.5.*: must be one-dimensional and in \[0, 1\]"),
        (lambda: Point([-0.1]), r"p_P=.*-0\.1"),
        (lambda: Point([np.nan]), r"p_P=.*nan"),
    ],
)
def test_bad_input(build, text):
    with pytest.raises(InputError, match=text):
        build()


@pytest.mark.parametrize(
    ("counts_N", "text"),
    [
        ([[1, 2]], "counts_N="),
        ([[1], [2, 3]], "counts_N="),
        ([0.5], "counts_N=[0.5]: must be a list of non-negative integers"),
        ([1, -1], "counts_N=[1, -1]: must be"),
        ([3, 100_000_001], "counts up to 100000000"),
    ],
)
def test_counts_that_cannot_be_priced_are_named(counts_N, text):
    with pytest.raises(InputError, match=re.escape(text)):
        check_counts(counts_N, 2)


@pytest.mark.parametrize("belief", [None, Beta, Point, object(), 3])
def test_what_is_no_belief_is_named(belief):
    with pytest.raises(InputError, match="give a belief, such as"):
        check_belief(belief)
    check_belief(Point([0.5]))


@pytest.mark.parametrize("index", [[0.5], [True], [[0]], [-1], [2], [[0], [0, 1]], [[]], None])
def test_an_index_that_is_no_list_of_places_is_named(index):
    with pytest.raises(InputError, match="give a list of places from 0 to 1"):
        Beta([1.0, 2.0], [1.0, 1.0]).take(index)


@pytest.mark.parametrize(("i", "j"), [(-1, 0), (0, -1), (65, 0), (0, 65), (0.5, 0), (0, None)])
def test_powers_are_integers_from_0_to_64(i, j):
    for belief in (Beta([1.0], [1.0]), Point([0.5])):
        with pytest.raises(InputError, match=r"[ij]="):
            belief.moment(i, j)
    with pytest.raises(InputError, match=r"[ij]="):
        Beta([1.0], [1.0]).tilt(i, j)
    assert Beta([1.0], [1.0]).moment(64, 0) == pytest.approx([1 / 65])
    assert Point([0.5]).moment(0, 64) == pytest.approx([0.5**64])


@pytest.mark.parametrize(
    ("spread_P", "text"),
    [([0.5], "spread_P has 1 entries for 2"), ([0.5, 1.5], "spread_P=1.5"), ([-0.1, 1], "spread_P=")],
)
def test_a_spread_that_does_not_fit_is_named(spread_P, text):
    for build in (lambda: Beta([1.0, 1.0], [1.0, 1.0], spread_P), lambda: Point([0.5, 0.5], spread_P)):
        with pytest.raises(InputError, match=text):
            build()
    assert Point([0.5, 0.5], [0.0, 1.0]).spread_P.tolist() == [0, 1]
