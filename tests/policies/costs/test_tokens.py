"""Budgets in tokens: the papers' numbers and enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.errors import InputError
from budgetalloc.policies.costs.tokens import (
    anytime_budgets,
    anytime_cost,
    anytime_prior,
    anytime_returns,
    budget_partition,
    curriculum_budget,
    elastic_split,
    length_caps,
    over_provision,
    speculative_saved,
)


@given(st.integers(1, 5), st.integers(0, 20))
@settings(deadline=None, max_examples=30)
def test_subgroups_of_a_partition_are_equal_within_one(k, more):
    budgets = [512 * (j + 1) for j in range(k)]
    given_R = budget_partition(k + more, budgets)
    sizes = [int((given_R == budget).sum()) for budget in budgets]
    assert sum(sizes) == k + more
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_a_partition_keeps_the_order_of_its_budgets():
    np.testing.assert_array_equal(budget_partition(5, [2560, 512]), [2560, 2560, 2560, 512, 512])


rows = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 999), st.sampled_from([0.0, 0.4, 1.0, np.nan])), max_size=40
)


@given(rows, st.floats(0, 1), st.floats(0.1, 3), st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_a_cap_is_the_quantile_of_successes_alone(rows, quantile, factor, least):
    ids, lengths, rewards = ([row[at] for row in rows] for at in range(3))
    caps = length_caps(
        ["c", "a", "new"], ids, lengths, rewards, longest=800, factor=factor, quantile=quantile, least=least
    )
    for name, cap in zip(["c", "a", "new"], caps, strict=True):
        wins = [length for i, length, reward in rows if i == name and reward > 0.5]
        if len(wins) < least:
            assert cap == 800
        else:
            wanted = np.clip(factor * np.quantile(wins, quantile), 1, 800)
            assert wanted - 1e-6 <= cap <= np.ceil(wanted + 1e-6)


def test_the_curriculum_of_the_paper():
    assert [curriculum_budget(step) for step in (0, 150, 300, 450)] == [256, 179, 125, 87]  # the sheet's
    assert [curriculum_budget(step) for step in (149, 299, 449, 599)] == [256, 179, 125, 87]
    assert curriculum_budget(10**6) == 1
    assert curriculum_budget(2, first=1000, every=1) == 490  # not 489: 1000 x 0.7^2 is 489.99999999999994 in floats


def test_the_stepwise_form_starts_and_ends_where_it_should_and_falls_in_equal_ratios():
    decay, every = (1000 / 10000) ** (1 / 4), 1000 / 5
    budgets = [curriculum_budget(step, first=10000, decay=decay, every=every, last=1000) for step in range(1000)]
    assert [budgets[at] for at in (0, 199, 200, 999)] == [10000, 10000, 5623, 1000]  # 10^3.75 = 5623.4
    assert [budgets.count(x) for x in dict.fromkeys(budgets)] == [200] * 5
    assert curriculum_budget(10**6, first=256, last=87) == 87


def test_the_solution_always_has_its_share():
    assert elastic_split() == (1024, 1024)
    assert elastic_split(1024) == (0, 1024)


def test_anytime_budgets_are_even_and_end_at_the_longest():
    np.testing.assert_array_equal(anytime_budgets(8000, 4), [2000, 4000, 6000, 8000])  # the sheet's L and k
    np.testing.assert_array_equal(anytime_budgets(10, 3), [3, 6, 10])


@pytest.mark.parametrize(
    ("prior", "expected"),
    [("uniform", [0.25] * 4), ("linear", [0.1, 0.2, 0.3, 0.4]), ("base", [0, 0, 0, 1])],
)
def test_the_priors(prior, expected):
    np.testing.assert_allclose(anytime_prior(anytime_budgets(8000, 4), prior), expected)


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["uniform", "linear", "base"]),
)
@settings(deadline=None, max_examples=50)
def test_a_segment_earns_what_the_truncations_at_its_end_and_later_pay(rewards, prior):
    weights = anytime_prior([10, 20, 30], prior)
    returns = anytime_returns(rewards, [10, 20, 30], prior)
    for row, returned in zip(rewards, returns, strict=True):
        expected = [sum(weights[j] * row[j] for j in range(s, 3)) for s in range(3)]
        np.testing.assert_allclose(returned, expected, atol=1e-12)


def test_anytime_costs_one_chain_and_its_summaries():
    assert anytime_cost(8000, 4, summaries=4, summary_tokens=100) == 8000 + 16 * 100


def test_over_provision_rounds_up_but_not_past_a_whole_number():
    assert [over_provision(32), over_provision(5, 1.5), over_provision(7, 1)] == [64, 8, 7]
    assert over_provision(100, 1.1) == 110  # 100 x 1.1 is 110.00000000000001 in floats


@given(st.lists(st.floats(-5, 5), max_size=6), st.floats(-1, 1), st.floats(0.1, 3))
@settings(deadline=None, max_examples=50)
def test_what_a_draft_saves_is_the_expected_place_of_the_first_rejection(ratios, bias, scale):
    accept = [min(1.0, float(np.exp(scale * (x - bias)))) for x in ratios]
    expected = sum(
        place * np.prod(accept[:place]) * (1 - accept[place] if place < len(accept) else 1)
        for place in range(len(accept) + 1)
    )
    assert speculative_saved(ratios, bias=bias, scale=scale) == pytest.approx(expected, abs=1e-9)


def test_an_unchanged_policy_saves_the_whole_response_and_a_token_that_cannot_be_written_again_ends_it():
    assert speculative_saved(np.zeros(50)) == 50
    assert speculative_saved([0, 0, -np.inf, 0]) == 2


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: budget_partition(1, [512, 1024]), "n=1"),
        (lambda: budget_partition(1, []), "budgets"),
        (lambda: budget_partition(1, [0]), "budgets=0"),
        (lambda: length_caps(["a"], ["a"], [1, 2], [1], longest=9), "lengths_R"),
        (lambda: length_caps(["a"], ["a"], [-1], [1], longest=9), "lengths_R"),
        (lambda: length_caps(["a"], ["a"], [1], [1], longest=0), "longest=0"),
        (lambda: length_caps(["a"], ["a"], [1], [1], longest=9, quantile=1.1), "quantile"),
        (lambda: length_caps(["a"], ["a"], [1], [1], longest=9, factor=0), "factor"),
        (lambda: curriculum_budget(-1), "step=-1"),
        (lambda: curriculum_budget(0, decay=0), "decay=0"),
        (lambda: curriculum_budget(0, every=0), "every=0"),
        (lambda: curriculum_budget(0, last=0), "last=0"),
        (lambda: elastic_split(100), "longest=100"),
        (lambda: anytime_budgets(3, 4), "longest=3"),
        (lambda: anytime_prior([1, 2], "geometric"), "prior"),
        (lambda: anytime_prior([2, 1]), "budgets_K"),
        (lambda: anytime_returns([1, np.nan], [1, 2]), "rewards_K"),
        (lambda: anytime_returns([1], [1, 2]), "rewards_K"),
        (lambda: anytime_cost(8000, 4, summary_tokens=0), "summary_tokens=0"),
        (lambda: over_provision(32, 0.5), "factor"),
        (lambda: speculative_saved([np.nan]), "log_ratio_T"),
        (lambda: speculative_saved([0], scale=0), "scale=0"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(InputError, match=name):
        call()
