"""Uniform groups in place of a policy's own rule, under every budget that the policy could spend."""

import numpy as np
import pytest
from budgets import budgets
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.policies.adaptive import uniform_groups


@given(budget=budgets(9), size=st.integers(1, 20))
@settings(max_examples=150, deadline=None)
def test_every_budget_is_spent_within_its_bounds(budget, size):
    counts_P = ba.adaptive().begin(range(9), budget, decide=uniform_groups(size)).request()
    assert counts_P.sum() == budget.rollouts
    assert np.isin(counts_P, budget.grid()).all()


@given(size=st.sampled_from([4, 8, 16]), low=st.integers(0, 12), room=st.integers(0, 12), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_quotas_that_no_groups_of_this_size_can_spend_get_smaller_groups(size, low, room, seed):
    budget = ba.Budget(64, floor=0, min_group=1, quotas={"a": (low, low + room)})
    domains_P = np.array(["a"] * 10 + ["b"] * 40)
    step = ba.adaptive(seed=seed).begin(range(50), budget, domains_P=domains_P, decide=uniform_groups(size))
    counts_P = step.request()
    assert counts_P.sum() == 64
    assert low <= counts_P[domains_P == "a"].sum() <= low + room


def test_with_a_floor_all_prompts_get_equal_counts():
    budget = ba.Budget(64, floor=2)  # as with candidates=1
    assert ba.adaptive().begin(range(8), budget, decide=uniform_groups(8)).request().tolist() == [8] * 8


@pytest.mark.parametrize("size", [2, 8])
def test_without_a_floor_groups_have_the_size(size):
    budget = ba.Budget(64, floor=0, min_group=1)
    counts_P = ba.adaptive().begin(range(100), budget, decide=uniform_groups(size)).request()
    assert sorted(counts_P.tolist())[-64 // size :] == [size] * (64 // size)
