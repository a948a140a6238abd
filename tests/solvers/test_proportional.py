"""Proportional shares: the budget is conserved, a count is close to its share, and heavier prompts get no less."""

import re

import numpy as np
import pytest
from budgets import budgets
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, BudgetError, InputError, UnsupportedError, proportional
from budgetalloc.solvers.proportional import clipped_shares, largest_remainder

weight = st.one_of(st.just(0.0), st.floats(1e-3, 1e3), st.sampled_from([1.0, 2.0]))


@given(weights=st.lists(weight, min_size=1, max_size=8), data=st.data())
@settings(max_examples=300, deadline=None)
def test_the_budget_is_spent_exactly_and_heavier_prompts_get_no_less(weights, data):
    budget = data.draw(budgets(len(weights), floors=range(5), most=40, highest_cap=12))
    counts_P = proportional(weights, None, budget)
    assert counts_P.shape == (len(weights),)
    assert counts_P.dtype == np.int64
    assert np.isin(counts_P, budget.grid()).all()
    assert counts_P.sum() == budget.rollouts
    weights_P = np.array(weights)
    heavier_PP = weights_P[:, None] > weights_P[None, :]
    assert (counts_P[:, None] >= counts_P[None, :])[heavier_PP].all()


@pytest.mark.parametrize(
    ("weights", "budget", "counts"),
    [
        ([100, 4, 3], Budget(24, floor=2, cap=10), [10, 8, 6]),  # the rest goes to the others in proportion
        (np.zeros(5), Budget(22), [5, 5, 4, 4, 4]),
        ([8, 8, 1, 0], Budget(16, floor=0, min_group=4), [8, 8, 0, 0]),
        ([1, 1, 1], Budget(2, floor=0, min_group=1), [1, 1, 0]),
        ([2, 1], Budget(3, floor=0, min_group=1), [2, 1]),  # the lighter share is exactly a group
        # Half of the rollouts is less than a group by less than the tolerance.
        ([1, 1], Budget(2**40 - 1, floor=0, min_group=2**39), [2**40 - 1, 0]),
        *(([3 * scale, scale], Budget(8, floor=0, min_group=1), [6, 2]) for scale in (1e-12, 1e-3, 1e12)),
    ],
)
def test_counts_by_hand(weights, budget, counts):
    assert proportional(weights, None, budget).tolist() == counts


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=10), st.integers(0, 3), st.integers(0, 9), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_clipped_shares_are_proportional_between_their_bounds(weights, low, room, place):
    high = low + 1 + room
    total = round(len(weights) * (low + place * (high - low)))
    weights_P = np.array(weights)
    assume(total > 0)
    shares_P = clipped_shares(weights_P, total, low, high)
    assert shares_P.sum() == pytest.approx(total, rel=1e-6)
    assert (shares_P >= low).all()
    assert (shares_P <= high).all()
    inside_P = (shares_P > low * (1 + 1e-6)) & (shares_P < high * (1 - 1e-6))
    scale_P = shares_P[inside_P] / weights_P[inside_P]
    assert scale_P == pytest.approx(scale_P[:1].repeat(scale_P.size), rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "total", "low", "high", "counts"),
    [
        ([1], 2**53 + 3, 0, 2**60, [2**53 + 3]),  # one too many as a float
        ([1, 2], 3 * 2**53 - 2, 2**53, 2**60, [2**53, 2**54 - 2]),  # two too many, but the first is at its lowest
        ([2, 1], 3 * 2**53 + 2, 0, 2**54, [2**54, 2**53 + 2]),  # two too few, but the first is at its highest
    ],
)
def test_totals_beyond_the_precision_of_floats_are_exact(weights, total, low, high, counts):
    assert largest_remainder(np.array(weights, dtype=float), total, low, high).tolist() == counts


ROLLOUTS = Budget(rollouts=8)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: proportional([1, -1], None, ROLLOUTS), InputError, "weights_P=[1, -1]"),
        (lambda: proportional([1, np.nan], None, ROLLOUTS), InputError, "weights_P=[1, nan]"),
        (lambda: proportional([1, np.inf], None, ROLLOUTS), InputError, "weights_P=[1, inf]"),
        (lambda: proportional([], None, ROLLOUTS), InputError, "weights_P=[]"),
        (lambda: proportional([[1]], None, ROLLOUTS), InputError, "weights_P=[[1]]"),
        (lambda: proportional([1, 1], None, Budget(None, tokens=100.0, cap=4)), UnsupportedError, "tokens=100.0"),
        (lambda: proportional([1, 1], None, Budget(8, tokens=100.0, cap=4)), UnsupportedError, "tokens=100.0"),
        (lambda: proportional([1, 1], None, Budget(8, quotas={"a": (0, 4)})), UnsupportedError, "rollouts only"),
        (lambda: proportional([1, 1], [1, 1], ROLLOUTS), UnsupportedError, "rollouts only"),
        (lambda: proportional(np.ones(8), None, Budget(16, floor=4)), BudgetError, "need 32 rollouts"),
    ],
)
def test_bad_input_is_named(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call()
