"""Mixtures: settings, shares within quotas, and the state of a run."""

import copy

import numpy as np
import pytest
from domain_steps import begun, mixed_quotas
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError, Needs, StateError
from budgetalloc.contrib.mixture import Mixture, MixtureState, check_mixture, shares_within
from budgetalloc.contrib.mixture_rules import Evidence
from budgetalloc.policies.adaptive import uniform_groups
from budgetalloc.policies.interface import Bounds

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


@pytest.mark.parametrize(
    "bad", ["lern", 5, ["learn"], {"rules": "learn"}, {"rule": "sec"}, {"rule": "x"}, {"probe": 0.6}, {"probe": "x"}]
)
def test_a_bad_mixture_is_refused(bad):
    with pytest.raises(InputError, match=r"mixture=|rule=|probe="):
        check_mixture(bad)


def test_every_form_of_a_mixture():
    assert check_mixture(None) is None
    assert check_mixture(Mixture("adept", 0.1)) == check_mixture({"rule": "adept", "probe": 0.1})


# --- the state of a run ---


SIZES = {"math": 40, "code": 20, "chat": 3, None: 5}
DOMAIN_OF = {f"{domain}-{k}": domain for domain, size in SIZES.items() for k in range(size)}


def learned(quotas, seed, steps=3):
    """Teaches the mixture steps of random rewards, whose rates differ by domain."""
    rng, names = np.random.default_rng(seed), list(quotas.domain_of)
    place_P = quotas.places_of(names)
    rate_D = rng.random(4)
    for _ in range(steps):
        at_R = rng.integers(0, len(names), 64)
        success_R = (rng.random(64) < rate_D[place_P[at_R]]).astype(float)
        n_P, s_P = np.bincount(at_R, minlength=len(names)), np.bincount(at_R, success_R, minlength=len(names))
        ones_P, ones_R = np.ones(len(names)), np.ones(64)
        after = Evidence(place_P, s_P, n_P.astype(float), ones_P, ones_P / 2)
        before = Evidence(place_P[at_R], 0 * ones_R, 0 * ones_R, ones_R, ones_R / 2)
        quotas.mixture.rule.observe(after, before, success_R, rng.random(64))
    return quotas


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["learn", "adept"]),
    st.sampled_from([(1, 1), (2, 1), (4, 1), (1, 4), (8, 8)]),
)
def test_every_step_spends_its_rollouts_near_the_shares(seed, rule, sizes):
    """Three prompts of chat hold at most 24 rollouts: their share is cut, and no step fails."""
    low, high = 0.2, 0.4
    quotas = learned(mixed_quotas({"code": (low, high)}, DOMAIN_OF, Mixture(rule)), seed)
    bounds = Bounds.resolve(Needs(candidates="all", min_group=sizes[0]), quantum=sizes[1], cap=8)
    counts_P = begun(quotas, ba.adaptive(seed=seed), bounds, 64, 8).request()
    domains = quotas.domains_P
    got = {domain: sum(n for n, d in zip(counts_P, domains, strict=True) if d == domain) for domain in SIZES}
    assert sum(got.values()) == 64
    assert low * 64 - 1 < got["code"] <= high * 64
    assert got["chat"] <= 24
    shares = quotas.mixture.shares()
    if shares["chat"] * 64 < 20 and shares[None] * 64 < 36:
        assert all(abs(got[d] - 64 * share) <= 8 + 2 * max(sizes) for d, share in shares.items())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [4, 8])
def test_uniform_groups_in_place_of_the_policys_can_spend_the_shares(seed, size):
    """The fallback while beliefs are out of bounds: groups of 8 cannot spend a probe of 5 rollouts."""
    quotas = learned(mixed_quotas({}, DOMAIN_OF, Mixture()), seed)
    bounds = Bounds.resolve(Needs(candidates="all", min_group=1), cap=16)
    counts_P = begun(quotas, ba.adaptive(), bounds, 256, size, uniform_groups(size)).request()
    assert counts_P.sum() == 256
    assert counts_P[counts_P > 0].min() >= size


def test_one_domain_is_no_mixture():
    with pytest.raises(InputError, match="all prompts have the domain 'math'"):
        mixed_quotas({}, {"a": "math", "b": "math"}, Mixture())


def test_a_restored_state_has_the_same_shares_and_another_rule_begins_anew(caplog):
    one = learned(mixed_quotas({}, DOMAIN_OF, Mixture()), 5).mixture
    state = copy.deepcopy(one.state_dict())
    other = MixtureState(Mixture(), one.domains, {})
    other.load_state_dict(state)
    assert other.shares() == one.shares()
    assert other.described() == one.described()
    assert repr(other.state_dict()) == repr(one.state_dict())
    fresh = MixtureState(Mixture("adept"), one.domains, {})
    fresh.load_state_dict(state)
    assert max(fresh.shares().values()) == pytest.approx(1 - 3 * 0.02)
    assert "The checkpoint has a mixture 'learn' of" in caplog.text
    damaged = {"mixture": state["mixture"] | {"learned": 5}}
    with pytest.raises(StateError, match="state=5"):
        one.load_state_dict(damaged)
    assert other.shares() == one.shares()
