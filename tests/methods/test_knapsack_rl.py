"""Knapsack RL: first the known failures of the released allocator, then the estimate, bounds and fallback."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_steps import visited

from budgetalloc import Budget, Point, values
from budgetalloc.methods.knapsack_rl import knapsack_rl, rollouts_to_mix


def test_rollouts_to_mix_are_the_fewest():
    """The closed form of the released code gives 229.1 to 3.3."""
    assert rollouts_to_mix(Point([0.01, 0.05, 0.1, 0.25, 0.5]), 0.9, 256).tolist() == [230, 45, 22, 9, 5]
    for p, n in ((0.1, 22), (0.75, 9)):  # the definition: n are enough and n - 1 are not
        assert 1 - p**n - (1 - p) ** n >= 0.9 > 1 - p ** (n - 1) - (1 - p) ** (n - 1)
    assert rollouts_to_mix(Point([0.0, 0.01, 1.0]), 0.9, 128).tolist() == [128] * 3


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 15), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 12),
    st.sampled_from(["unsolved", "effective"]),
)
def test_nothing_extra_has_its_true_value(passed, low, extra, surplus):
    """The released code values "nothing extra" at 0 and misses the optimum. Here it is compared with all splits."""
    rates, rollouts = [k / 16 for k in passed], low * len(passed) + extra
    policy = visited(knapsack_rl(low=low, high=9, surplus=surplus), rates)
    assume(rollouts <= 9 * len(rates))
    counts_P = policy.allocate(range(len(rates)), Budget(rollouts=rollouts, floor=low, min_group=1))
    worth_PN = values.success_gain(Point(rates), np.arange(10))

    def worth(counts):
        return sum(worth_PN[i, n] for i, n in enumerate(counts))

    splits = itertools.product(range(low, 10), repeat=len(rates))
    assert worth(counts_P) >= max(worth(c) for c in splits if sum(c) == rollouts) - 1e-6


def test_a_batch_of_easy_effective_prompts():
    """The released code stops with "Budget mismatch: expected 128, got 80"."""
    assert visited(knapsack_rl(), [0.5] * 16).allocate(range(16), Budget(rollouts=128)).tolist() == [8] * 16


def test_a_cold_prompt_is_not_an_unsolved_one():
    """The released code gives 17 rollouts to each of 4 cold prompts and 5 to each of 12 at one half."""
    counts_P = visited(knapsack_rl(), [0.5] * 12 + [None] * 4).allocate(range(16), Budget(rollouts=128))
    assert counts_P.tolist() == [8] * 16
    counts_P = visited(knapsack_rl(), [0.5] * 8 + [None] * 4 + [0.0] * 4).allocate(range(16), Budget(rollouts=128))
    assert counts_P.tolist() == [5] * 8 + [8] * 4 + [14] * 4  # 8 * 5 are useful, and 128 - 40 - 32 are left


def test_a_solved_prompt_does_not_get_the_surplus():
    """The released code gives 53 rollouts to the one solved prompt among 16."""
    for surplus in ("unsolved", "effective"):
        policy = visited(knapsack_rl(surplus=surplus), [0.5] * 15 + [1.0])
        counts_P = policy.allocate(range(16), Budget(rollouts=128))
        assert counts_P[15] == 2
        assert sorted(counts_P[:15]) == [8] * 9 + [9] * 6


REWARDS = st.lists(st.sampled_from([0.0, 1.0, np.nan]), max_size=20)


@given(visits=st.lists(REWARDS, max_size=6), recent=st.sampled_from([1, 4, 16]))
@settings(max_examples=60, deadline=None)
def test_the_estimate_looks_back_over_recent_rewards_visit_by_visit(visits, recent):
    """A visit that lies partly in the window counts with its mean; NaN is no evidence."""
    policy = knapsack_rl(recent=recent)
    for rewards in visits:
        policy.observe(["a"] * len(rewards) + ["b"], [*rewards, 1.0])
    scored = [[r for r in rewards if r == r] for rewards in visits]
    seen = [np.mean(rewards) for rewards in scored[::-1] for _ in rewards][:recent]
    recall = policy.memory.recall(["a"])
    assert recall["scored"].tolist() == [sum(map(len, scored))]
    assert recall["rate"] == pytest.approx([np.mean(seen) if seen else np.nan], abs=1e-12, nan_ok=True)


def test_the_rest_goes_by_kind_of_prompt():
    """The unsolved have the surplus up to `high`; then effective, unknown and solved prompts in turn; then all."""
    policy = visited(knapsack_rl(high=6), [0.5, 0.0, 1.0])
    wanted = [
        (11, [5, 2, 2, 2]),  # of which 2 each come first
        (12, [5, 2, 2, 3]),
        (16, [5, 5, 2, 4]),
        (17, [5, 6, 2, 4]),
        (18, [6, 6, 2, 4]),
        (20, [6, 6, 2, 6]),
        (24, [6, 6, 6, 6]),
        (28, [7, 7, 7, 7]),
    ]
    for rollouts, counts in wanted:
        counts_P = policy.allocate([0, 1, 2, "new"], Budget(rollouts=rollouts))
        assert counts_P.tolist() == counts


def test_a_budget_in_tokens_prices_by_tokens():
    policy = visited(knapsack_rl(), [0.5, 0.5, 1.0])
    costs_P = np.array([1.0, 4.0, 2.0])
    counts_P = policy.allocate(range(3), Budget(rollouts=None, tokens=40, cap=64), costs_P)
    assert counts_P @ costs_P <= 40
    assert counts_P[0] > counts_P[1] > counts_P[2] == 2
    budget = Budget(rollouts=24, quotas={"easy": (6, 8)})
    assert policy.allocate(range(3), budget, domains_P=["a", "a", "easy"]).tolist() == [9, 9, 6]
