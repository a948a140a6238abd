"""A price on tokens, beside HiGHS's optimum on small problems and its own bound on large ones."""

import zlib
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.solvers.exact import certify
from budgetalloc.solvers.lagrangian import by_price

needs_ortools = pytest.mark.skipif(find_spec("ortools") is None, reason="OR-Tools is not installed")


def problem(seed: int, prompts: int, floor: int, share: float, tokens: float, shape: str):
    """Values, costs and a budget of which this share of the tokens between the fewest and greedy's is allowed."""
    rng = np.random.default_rng(seed)
    budget = ba.Budget(rollouts=3 * prompts, floor=floor, cap=8)
    rates_P, costs_P = rng.beta(0.5, 0.5, prompts), rng.lognormal(4, 0.6, prompts)
    value = {"concave": ba.mixed_group, "any": lambda p, n: rng.random((prompts, len(n)))}[shape]
    values_PN = value(ba.Point(rates_P), budget.grid())
    least, most = (costs_P @ ba.greedy(x_PN, None, budget) for x_PN in (-np.outer(costs_P, budget.grid()), values_PN))
    return values_PN, costs_P, replace(budget, tokens=float(least + tokens * max(most - least, 0.0) + 1e-6))


problems = st.builds(
    problem,
    st.integers(0, 10_000),
    st.integers(3, 8),
    st.sampled_from([0, 2]),
    st.just(1.0),
    st.floats(0.05, 1.1),
    st.sampled_from(["concave", "any"]),
)


@given(problems)
def test_counts_hold_and_the_bound_is_above_the_best(made):
    values_PN, costs_P, budget = made
    counts_N, rows = budget.grid(), np.arange(len(values_PN))
    counts_P, bound = by_price(values_PN, counts_N, costs_P, budget)
    assert counts_P.sum() == budget.rollouts
    assert costs_P @ counts_P <= budget.tokens * (1 + 1e-12)
    assert np.isin(counts_P, counts_N).all()
    value = values_PN[rows, np.searchsorted(counts_N, counts_P)].sum()
    best = certify(values_PN, costs_P, budget).value
    assert value <= best + 1e-9
    assert best <= bound + 1e-9


def large(prompts: int = 2048, **more):
    rng = np.random.default_rng(0)
    rates_P, costs_P = rng.beta(0.5, 0.5, prompts), rng.lognormal(5, 0.6, prompts)
    budget = ba.Budget(rollouts=2 * prompts, floor=0, cap=64, **more)
    values_PN = ba.mixed_group(ba.Beta(8 * rates_P + 0.5, 8.5 - 8 * rates_P), budget.grid())
    domains = {"domains_P": np.arange(prompts) % 3} if budget.quotas else {}
    tokens = 0.7 * float(costs_P @ ba.greedy(values_PN, None, budget, **domains))
    return values_PN, costs_P, replace(budget, tokens=tokens), domains


@pytest.mark.parametrize("quotas", [None, {0: (0, 1000), 1: (1500, 2000)}])
def test_a_large_problem_is_within_a_thousandth_of_its_bound(quotas):
    values_PN, costs_P, budget, domains = large(quotas=quotas)
    made = certify(values_PN, costs_P, budget, by="price", **domains)
    assert made.counts_P.sum() == budget.rollouts
    assert costs_P @ made.counts_P <= budget.tokens
    for domain, (fewest, most) in (quotas or {}).items():
        assert fewest <= made.counts_P[domains["domains_P"] == domain].sum() <= most
    assert 0 <= made.bound - made.value < 1e-3 * made.bound


@pytest.mark.parametrize(
    ("quotas", "of_price", "of_greedy"),
    [(None, 770261749, 2071706473), ({0: (0, 1000), 1: (1500, 2000)}, 4209783516, 1043269497)],
)
def test_counts_of_many_ties_are_those_of_earlier_versions(quotas, of_price, of_greedy):
    """Values of any shape in hundredths; checksums of counts."""
    values_PN, costs_P, budget, domains = large(quotas=quotas)
    values_PN = np.round(np.random.default_rng(1).random(values_PN.shape), 2)
    budget = replace(budget, tokens=0.6 * budget.rollouts * costs_P.mean())
    counts_P = certify(values_PN, costs_P, budget, by="price", **domains).counts_P
    assert zlib.crc32(counts_P.astype("<i8").tobytes()) == of_price
    counts_P = ba.greedy(values_PN, None, replace(budget, tokens=None), **domains)
    assert zlib.crc32(counts_P.astype("<i8").tobytes()) == of_greedy


@pytest.mark.parametrize("by", ["highs", pytest.param("ortools", marks=needs_ortools)])
def test_a_search_without_time_returns_what_the_price_found(by):
    values_PN, costs_P, budget, _ = large(512)
    made = certify(values_PN, costs_P, budget, by=by, time_limit=1e-6)
    assert made.value >= certify(values_PN, costs_P, budget, by="price").value
    assert made.bound - made.value < 1e-3 * made.bound


@needs_ortools
def test_a_pool_with_two_limits_is_decided_by_a_price_and_few_prompts_exactly():
    values_PN, costs_P, budget, _ = large()
    policy = ba.knapsack(value=lambda belief, counts_N: values_PN[:, np.searchsorted(budget.grid(), counts_N)])
    counts_P = policy.allocate(range(2048), budget, costs_P)
    assert counts_P.sum() == budget.rollouts
    assert costs_P @ counts_P <= budget.tokens
    slow = ba.knapsack(solver=partial(ba.ortools, time_limit=0.2))
    few = ba.Budget(rollouts=16, tokens=2000.0, floor=2)
    assert (
        slow.allocate(["a", "b"], few, [100, 200]).tolist()
        == ba.knapsack().allocate(["a", "b"], few, [100, 200]).tolist()
    )


def test_a_price_is_for_two_limits():
    values_PN = ba.mixed_group(ba.Point([0.5, 0.1]), ba.Budget(rollouts=16, floor=0).grid())
    with pytest.raises(ba.UnsupportedError, match="by='price' is for rollouts and tokens"):
        certify(values_PN, None, ba.Budget(rollouts=16, floor=0), by="price")
