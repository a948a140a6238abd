"""Shares of the rollouts by domain: in counts, on offer, and what cannot be kept."""

from collections import Counter

import pytest
from domain_steps import begun, planned
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Budget, BudgetError, InputError, Needs, UnsupportedError
from budgetalloc.contrib.quotas import Quotas, check_shares
from budgetalloc.policies.interface import Bounds

DOMAIN_OF = {n: ["math", "code", "chat", None][n % 4] for n in range(40)}


def shares_of(ids_P, counts_P, domain_of=DOMAIN_OF):
    rollouts = Counter()
    for name, count in zip(ids_P, counts_P.tolist(), strict=True):
        rollouts[domain_of[name]] += count
    return {domain: count / counts_P.sum() for domain, count in rollouts.items()}


@pytest.mark.parametrize("rollouts", [100, 200, 700])
def test_a_share_that_is_a_whole_number_is_that_number(rollouts):
    """0.07 * 100 is 7.000000000000001, which is no 8, and 0.29 * 100 is 28.999999999999996."""
    for hundredths in range(101):
        quotas = Quotas({"math": (hundredths / 100,) * 2}, DOMAIN_OF)
        assert quotas.of_step(Budget(rollouts, floor=0)).quotas == {"math": (rollouts * hundredths // 100,) * 2}


def test_a_share_without_a_whole_number_names_those_that_have_one():
    quotas = Quotas({"math": (0.33, 0.36)}, DOMAIN_OF)
    text = r"no multiple of 2 is such a share of 8 rollouts. Use \(0.25, 0.36\) or \(0.33, 0.5\)"
    with pytest.raises(BudgetError, match=text):
        quotas.of_step(Budget(8, floor=0, quantum=2))
    for share in ((0.25, 0.36), (0.33, 0.5)):
        Quotas({"math": share}, DOMAIN_OF).of_step(Budget(8, floor=0, quantum=2))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(1, 1), (2, 1), (4, 1), (1, 4), (8, 8)]),
    st.sampled_from([ba.adaptive, ba.knapsack, ba.uniform]),
)
def test_quotas_are_kept_in_groups_of_any_size(seed, sizes, build):
    """Also by a domain of three prompts only."""
    domain_of = {n: "code" if n < 3 else ["math", "chat"][n % 2] for n in range(60)}
    quotas, policy = Quotas({"code": (0.25, 0.25), "math": (0.5, 0.7)}, domain_of), build(seed=seed)
    bounds = Bounds.resolve(policy.needs, candidates="all", min_group=sizes[0], quantum=sizes[1])
    planned(quotas, policy, bounds, 64, 8, check=True)
    step = begun(quotas, policy, bounds, 64, 8)
    assert step.ids_P == list(domain_of)
    shares = shares_of(step.ids_P, step.request(), domain_of)
    assert shares["code"] == 0.25
    assert 0.5 <= shares["math"] <= 0.7


@pytest.mark.parametrize(
    ("quotas", "text"),
    [
        ({}, "give the lowest and highest share of each domain"),
        ([("math", 0.5)], "give the lowest and highest share of each domain"),
        ({"math": 0.5}, r"quotas=\{'math': 0.5\}: give two shares of the rollouts, 0 <= lowest <= highest <= 1"),
        ({"math": (0.5, 0.3)}, "0 <= lowest <= highest <= 1"),
        ({"math": (30, 50)}, "0 <= lowest <= highest <= 1"),
        ({"math": (0.1, 0.2, 0.3)}, "give two shares"),
        ({"math": (True, 1.0)}, "give two shares"),
        ({"math": (0.6, 0.7), "code": (0.5, 0.6)}, "the lowest shares add up to 1.1"),
    ],
)
def test_bad_shares_are_named(quotas, text):
    with pytest.raises(InputError, match=text):
        check_shares(quotas)


def test_a_domain_that_no_prompt_has_is_named_with_those_that_there_are():
    with pytest.raises(
        InputError, match=r"no prompt has this domain, did you mean math\? The domains are \['math', 'co"
    ):
        Quotas({"maths": (0.0, 1.0)}, DOMAIN_OF)


@pytest.mark.parametrize(
    ("shares", "bounds", "text"),
    [
        ({"math": (0.5, 0.6)}, {"cap": 2}, r"quotas\['math'\]=\(32, 38\) .* 10 prompts, which take 0 to 20"),
        ({"math": (0.0, 0.1)}, {"floor": 1}, r"quotas\['math'\]=\(0, 6\) .* 10 prompts, which take 10 to 320"),
        (dict.fromkeys(["math", "code", "chat", None], (0, 0.2)), {}, "quotas allow 48 rollouts"),
        ({"math": (0.04, 0.05)}, {"min_group": 4}, "10 prompts, .* in groups of 4"),
    ],
)
def test_what_cannot_be_kept_is_named_before_the_training(shares, bounds, text):
    bounds = Bounds.resolve(Needs(candidates="all"), **{"min_group": 1} | bounds)
    with pytest.raises(BudgetError, match=text):
        planned(Quotas(shares, DOMAIN_OF), ba.adaptive(), bounds, 64, 4, check=True)


@pytest.mark.parametrize(
    ("policy", "candidates", "text"),
    [
        (ba.adaptive(), 1, "quotas with candidates=1: a batch may hold no prompt of 'math'. Use candidates='all'"),
        (ba.methods.pods(), "all", "generates more rollouts than are trained on"),
        (ba.methods.reinforce_ada(), "all", "decides in rounds|generates more"),
    ],
)
def test_policies_that_may_break_quotas_are_refused(policy, candidates, text):
    bounds = Bounds.resolve(policy.needs, candidates=candidates)
    with pytest.raises(UnsupportedError, match=text):
        planned(Quotas({"math": (0.3, 0.5)}, DOMAIN_OF), policy, bounds, 64, 8, check=True)
