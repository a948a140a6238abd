"""Values: against their formula at a known rate, against quadrature under a Beta, and their shape in n."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from budgetalloc import Beta, Point, mixed_group, pass_at_n, success_gain, variance

# The definition of each value at a known rate p, for n >= 1.
FORMULAS = {
    mixed_group: lambda p, n: 1 - p**n - (1 - p) ** n,
    pass_at_n: lambda p, n: 1 - (1 - p) ** n,
    variance: lambda p, n: p * (1 - p) * (1 - 1 / n),
    success_gain: lambda p, n: (1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2,
}
VALUES = list(FORMULAS)
N = np.arange(0, 33)
each_value = pytest.mark.parametrize("value", VALUES, ids=lambda v: v.__name__)
rates = st.lists(st.floats(0, 1), min_size=1, max_size=5)
betas = st.lists(st.tuples(st.floats(0.05, 300), st.floats(0.05, 300)), min_size=1, max_size=5)


@each_value
@given(p=rates)
@settings(max_examples=50, deadline=None)
def test_point_formula(value, p):
    expected = np.array([[FORMULAS[value](x, n) if n else 0.0 for n in N] for x in p])
    assert value(Point(p), N) == pytest.approx(expected, abs=1e-12)


@each_value
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1.0, 1.0), (8.5, 0.5), (2.3, 7.1), (30.0, 20.0)])
def test_beta_is_the_expectation(value, a, b):
    got = value(Beta([a], [b]), N)[0]
    weight = {"weight": "alg", "wvar": (a - 1, b - 1), "epsabs": 0, "epsrel": 1e-10}
    norm, _ = integrate.quad(lambda p: 1.0, 0, 1, **weight)
    for n in (1, 2, 3, 8, 32):
        total, _ = integrate.quad(lambda p, n=n: FORMULAS[value](p, n), 0, 1, **weight)
        assert got[n] == pytest.approx(total / norm, rel=1e-7, abs=1e-10)


@each_value
@given(p=rates, ab=betas)
@settings(max_examples=100, deadline=None)
def test_shape_in_n(value, p, ab):
    """0 at n = 0, never falling, concave from n = 1 (what makes the greedy solver exact)."""
    for belief in (Point(p), Beta(*zip(*ab, strict=True))):
        values_PN = value(belief, N)
        assert values_PN.shape == (len(belief), N.size)
        assert (values_PN[:, 0] == 0).all()
        gains = np.diff(values_PN, axis=1)
        assert (gains >= -1e-12).all()
        assert (np.diff(gains[:, 1:], axis=1) <= 1e-12).all()
        assert (value(belief, N[::-4]) == values_PN[:, ::-4]).all()


def test_the_peak_of_success_gain_moves_from_two_fifths_to_a_third():
    p = np.linspace(0, 1, 30_001)
    values_PN = success_gain(Point(p), [2, 4, 8, 16, 512])
    peaks = p[values_PN.argmax(axis=0)]
    assert peaks[0] == pytest.approx(2 / 5, abs=1e-4)
    assert peaks[-1] == pytest.approx(1 / 3, abs=1e-4)
    assert (np.diff(peaks) < 0).all()
    assert values_PN[:, 0].max() == pytest.approx(2 * 0.4**2 * 0.6**3)
    assert values_PN[:, -1].max() == pytest.approx(4 / 27, abs=1e-9)
