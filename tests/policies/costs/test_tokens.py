"""Limits on response length: the papers' numbers and enumeration."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.policies.costs.tokens import (
    budget_partition,
    curriculum_budget,
    length_caps,
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
