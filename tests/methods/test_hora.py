"""HORA: the second round is the exact optimum."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.hora import hora
from budgetalloc.testing.conformance import budgets


def piloted(passed, rollouts, pilot=4, **bounds):
    """The second round of a step in which the prompts passed so many of their pilots."""
    ids = list(range(len(passed)))
    step = hora(pilot=pilot).begin(ids, Budget(rollouts=rollouts, **bounds))
    assert step.request().tolist() == [pilot] * len(ids)
    step.observe(np.repeat(ids, pilot).tolist(), [float(k < s) for s in passed for k in range(pilot)])
    return step.request()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 14), st.integers(5, 12))
def test_the_second_round_is_the_exact_optimum(passed, left, cap):
    assume(4 * len(passed) + left <= cap * len(passed))

    def missed(m, s):  # E[(1-p)^m] under Beta(1 + s, 5 - s), by gamma functions
        f = 4 - s
        return math.exp(math.lgamma(f + 1 + m) - math.lgamma(f + 1) + math.lgamma(6) - math.lgamma(6 + m))

    more_P = piloted(passed, 4 * len(passed) + left, cap=cap)
    assert more_P.sum() == left
    splits = itertools.product(range(cap - 4 + 1), repeat=len(passed))
    least = min(sum(map(missed, c, passed)) for c in splits if sum(c) == left)
    assert sum(map(missed, more_P.tolist(), passed)) == pytest.approx(least, abs=1e-9)


def test_a_solved_pilot_needs_one_more_rollout_and_a_failed_one_many():
    """Exact: m more are worth m / (m + 5) after four failures, 1 - 120 m! / (m + 5)! after four successes."""
    # Gains 5/6, 5/42, ... of the solved prompt, and 1/6, 5/42, 5/56, ... of the failed one.
    assert piloted([4, 0], 9).tolist() == [1, 0]
    assert piloted([4, 0], 10).tolist() == [1, 1]
    assert piloted([4, 0], 14).tolist() == [2, 4]


def test_what_came_before_the_step_does_not_count():
    policy = hora()
    policy.observe(["a"] * 50 + ["b"] * 50, [1] * 50 + [0] * 50)
    step = policy.begin(["a", "b"], Budget(rollouts=16))
    step.observe([x for x, n in zip(["a", "b"], step.request(), strict=True) for _ in range(n)], [1, 0] * 4)
    assert step.request().tolist() == [4, 4]


def test_a_pilot_without_rewards_leaves_the_prior():
    step = hora(pilot=2).begin(["a", "b"], Budget(rollouts=8))
    step.request()
    step.observe(["a", "a", "b", "b"], [np.nan, np.nan, 1, 0])  # Beta(1, 1) and Beta(2, 2)
    assert step.request().tolist() == [2, 2]  # both 1/2 first; then 1/6 and 1/5


def test_every_round_leaves_groups_that_the_budget_allows():
    for budget, prompts in budgets(60):
        step, total_P = hora(pilot=1).begin(range(prompts), budget), np.zeros(prompts, dtype=int)
        while (counts_P := step.request()).any():
            total_P += counts_P
            assert np.isin(total_P, budget.grid()).all()
            step.observe(np.repeat(range(prompts), counts_P), np.arange(counts_P.sum()) % 2)


def test_pilots_shrink_where_the_budget_is_small():
    assert hora().begin(range(3), Budget(rollouts=9)).request().tolist() == [3, 3, 3]
    assert sorted(hora().begin(range(8), Budget(rollouts=9, floor=0)).request()) == [0] * 4 + [2] * 4
