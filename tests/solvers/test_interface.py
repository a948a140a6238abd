"""What every solver checks of its arguments: values with a column for each count, and costs."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc import Budget, BudgetError, InputError
from budgetalloc.solvers.interface import check_costs, check_domains, check_values, largest


def test_columns_stand_for_the_counts_of_the_grid_and_fewer_columns_are_a_lower_cap():
    values_PN, counts_N = check_values([[0, 1, 2]] * 3, Budget(rollouts=8, cap=6))
    assert values_PN.dtype == np.float64
    assert counts_N.tolist() == [2, 3, 4]
    assert check_values(np.zeros((4, 3)), Budget(rollouts=9, floor=0))[1].tolist() == [0, 2, 3]
    assert check_values(np.zeros((1, 7)), Budget(rollouts=8))[1].tolist() == [2, 3, 4, 5, 6, 7, 8]  # exactly enough


@pytest.mark.parametrize(
    ("values_PN", "budget", "text"),
    [
        (np.zeros(3), Budget(rollouts=8), "values_PN has shape (3,)"),
        (np.zeros((0, 3)), Budget(rollouts=8), "values_PN has shape (0, 3)"),
        (np.zeros((2, 0)), Budget(rollouts=8), "values_PN has shape (2, 0)"),
        (np.zeros((2, 9)), Budget(rollouts=8), "values_PN has shape (2, 9)"),
        ([[0, 1, np.nan]] * 2, Budget(rollouts=8, cap=4), "values_PN holds nan"),
        ([[0, 1, np.inf]] * 2, Budget(rollouts=8, cap=4), "values_PN holds inf"),
        (np.zeros((2, 2)), Budget(rollouts=8), "values_PN ends at 3 rollouts"),
        (np.zeros((9, 2)), Budget(rollouts=5, floor=0), "values_PN ends at 2 rollouts"),
    ],
)
def test_values_that_do_not_fit_are_named(values_PN, budget, text):
    with pytest.raises(InputError, match=re.escape(text)):
        check_values(values_PN, budget)


def test_a_budget_that_cannot_be_spent_is_named_before_the_values():
    """It is not the columns that are wrong: such a budget has no grid."""
    with pytest.raises(BudgetError, match=r"need 2 rollouts\. Use floor=1"):
        check_values(np.zeros((1, 1)), Budget(rollouts=1))


def test_costs_are_floats():
    assert check_costs([1, 2], 2).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("costs_P", "text"),
    [
        (None, "costs_P=None: a budget in tokens needs"),
        ([1.0], "costs_P=[1.0]"),
        ([1, 0], "costs_P=[1, 0]"),
        ([1, -1], "costs_P=[1, -1]"),
        ([1, np.inf], "costs_P=[1, inf]"),
        ([1, np.nan], "costs_P=[1, nan]"),
    ],
)
def test_costs_that_do_not_fit_are_named(costs_P, text):
    with pytest.raises(InputError, match=re.escape(text)):
        check_costs(costs_P, 2)


def test_domains_are_one_for_each_prompt():
    assert check_domains(("math", 3, None), 3) == ["math", 3, None]


@pytest.mark.parametrize(
    ("domains_P", "text"),
    [
        (["a"], "domains_P has 1 entries for 2 prompts: give one each"),
        (["a", "b", "c"], "domains_P has 3 entries for 2 prompts"),
        (["a", ["b"]], "domains_P[1]=['b'] cannot name a domain: use a str"),
        (None, "domains_P=None"),
    ],
)
def test_domains_that_do_not_fit_are_named(domains_P, text):
    with pytest.raises(InputError, match=re.escape(text)):
        check_domains(domains_P, 2)


@given(st.lists(st.integers(0, 4), max_size=20), st.integers(0, 22))
def test_the_largest_are_the_first_of_a_stable_sort(values, most):
    values_P = np.array(values, dtype=np.float64)
    assert largest(values_P, most).tolist() == np.sort(np.argsort(-values_P, kind="stable")[:most]).tolist()
