"""The settings of a mixture, shares within quotas, and the bound on how long a fall stays unseen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc import InputError
from budgetalloc.contrib.mixture import Mixture, check_mixture, shares_within, steps_to_see_fall

parts = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=6
)  # of a weight, a lowest and a highest share


@given(parts, st.floats(0, 0.5))
def test_shares_add_up_and_keep_quotas_and_the_probe(rows, probe):
    weight_D, low_D, high_D = (np.array(column) for column in zip(*rows, strict=True))
    low_D = low_D / max(low_D.sum(), 1.0)
    high_D = np.maximum(low_D, high_D)
    high_D[0] = 1.0  # so that the sum 1 can be reached
    share_D = shares_within(weight_D, low_D, high_D, probe)
    assert share_D.sum() == pytest.approx(1, abs=1e-6)
    assert (share_D >= low_D - 1e-9).all()
    assert (share_D <= high_D + 1e-9).all()
    if np.maximum(low_D, np.minimum(probe, high_D)).sum() <= 1:
        assert (share_D >= np.minimum(probe, high_D) - 1e-9).all()


def test_domains_that_cannot_all_have_the_probe_get_even_shares():
    share_D = shares_within(np.array([1.0, 0, 0, 0]), np.zeros(4), np.ones(4), 0.4)
    np.testing.assert_allclose(share_D, 0.25, atol=1e-9)


@pytest.mark.parametrize(("fall", "solved", "probes"), [(0.1, 1.0, 5), (0.3, 0.95, 2), (0.5, 0.8, 1), (0.05, 0.9, 40)])
@pytest.mark.parametrize("miss", [0.05, 0.2])
def test_the_bound_holds_for_0_and_1_by_the_exact_binomial(fall, solved, probes, miss):
    """The probability that the mean of the probes is still above `solved` - fall / 2, summed exactly."""
    n, low = probes * steps_to_see_fall(fall, probes, solved=solved, miss=miss), solved - fall
    first = math.ceil(n * (solved - fall / 2) - 1e-9)
    unseen = sum(math.comb(n, k) * low**k * (1 - low) ** (n - k) for k in range(first, n + 1))
    assert unseen <= miss
    assert unseen > miss**6  # and it is not far from needed


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"fall": 0}, "fall=0"),
        ({"fall": 0.9, "solved": 0.5}, "fall=0.9"),
        ({"fall": 0.1, "probes": 0}, "probes=0"),
        ({"fall": 0.1, "miss": 1}, "miss=1"),
        ({"fall": 0.1, "solved": 2}, "solved=2"),
    ],
)
def test_a_bound_out_of_range_names_the_argument(given, text):
    with pytest.raises(InputError, match=text):
        steps_to_see_fall(**{"probes": 5, **given})


@pytest.mark.parametrize(
    "bad", ["lern", 5, ["learn"], {"rules": "learn"}, {"rule": "sec"}, {"rule": "x"}, {"probe": 0.6}, {"probe": "x"}]
)
def test_a_bad_mixture_is_refused(bad):
    with pytest.raises(InputError, match=r"mixture=|rule=|probe="):
        check_mixture(bad)


def test_every_form_of_a_mixture():
    assert check_mixture(None) is None
    assert check_mixture(Mixture("adept", 0.1)) == check_mixture({"rule": "adept", "probe": 0.1})
