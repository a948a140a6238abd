"""What several published methods must keep: budgets in rollouts, tokens and quotas, and what a drawn batch holds."""

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, BudgetError
from budgetalloc.policies.published.across_prompts.cero import cero
from budgetalloc.policies.published.across_prompts.coba_rl import coba_rl
from budgetalloc.policies.published.across_prompts.dart import dart
from budgetalloc.policies.published.across_prompts.e3 import e3
from budgetalloc.policies.published.across_prompts.gvm import gvm
from budgetalloc.policies.published.across_prompts.knapsack_rl import knapsack_rl
from budgetalloc.policies.published.across_prompts.vip import vip
from budgetalloc.policies.published.in_rounds.hora import hora
from budgetalloc.policies.published.which_prompts.brorl import brorl
from budgetalloc.policies.published.which_prompts.drive import drive

PRICED = [knapsack_rl, partial(knapsack_rl, low=3, high=5, surplus="effective"), coba_rl, partial(coba_rl, high=4)]


@settings(max_examples=50, deadline=None)
@given(data=st.data(), make=st.sampled_from(PRICED), floor=st.integers(0, 3), cap=st.integers(1, 24) | st.none())
def test_what_prices_a_batch_spends_the_budget_exactly(data, make, floor, cap):
    quantum, least, prompts = (data.draw(st.integers(1, n)) for n in (3, 4, 13))
    try:
        rollouts = quantum * data.draw(st.integers(1, 60))
        budget = Budget(rollouts=rollouts, floor=floor, cap=cap, quantum=quantum, min_group=least)
        budget.check(prompts)
    except BudgetError:
        assume(False)
    policy, ids, rng = make(seed=3), list(range(prompts)), np.random.default_rng(rollouts)
    for _ in range(3):
        counts_P = policy.allocate(ids, budget)
        assert counts_P.sum() == rollouts
        assert set(counts_P.tolist()) <= set(budget.grid().tolist())
        order = data.draw(st.permutations(ids))
        assert policy.allocate(order, budget).tolist() == counts_P[order].tolist()
        policy.observe(np.repeat(ids, counts_P).tolist(), rng.choice([0, 1, 0.5, 1 / 3, np.nan], rollouts))


@settings(max_examples=50, deadline=None)
@given(
    data=st.data(),
    make=st.sampled_from([hora, partial(hora, pilot=1), cero, partial(cero, high=3, saturation=2.0)]),
    floor=st.integers(0, 3),
    cap=st.integers(1, 24) | st.none(),
)
def test_every_round_spends_the_budget_exactly_in_any_order(data, make, floor, cap):
    quantum, least, prompts = (data.draw(st.integers(1, n)) for n in (3, 4, 13))
    try:
        rollouts = quantum * data.draw(st.integers(1, 60))
        budget = Budget(rollouts=rollouts, floor=floor, cap=cap, quantum=quantum, min_group=least)
        budget.check(prompts)
    except BudgetError:
        assume(False)
    ids, order = list(range(prompts)), data.draw(st.permutations(range(prompts)))
    one, other, rng = make(seed=3), make(seed=3), np.random.default_rng(rollouts)
    for _ in range(2):
        total_P = np.zeros(prompts, dtype=int)
        step, mirror = one.begin(ids, budget), other.begin(order, budget)
        while (counts_P := step.request()).any():
            assert mirror.request().tolist() == counts_P[order].tolist()
            assert set((total_P + counts_P).tolist()) <= set(budget.grid().tolist())
            total_P += counts_P
            seen = np.repeat(ids, counts_P).tolist()
            rewards = rng.choice([0, 1, 0.5, np.nan], len(seen))
            step.observe(seen, rewards)
            mirror.observe(seen, rewards)
        assert total_P.sum() == rollouts
        step.end()
        mirror.end()


def observe(policy, rates, group=8):
    """One step with the given mean reward of each prompt."""
    ids_R = [x for x in rates for _ in range(group)]
    policy.observe(ids_R, [float(k < round(r * group)) for r in rates.values() for k in range(group)])


@pytest.mark.parametrize("build", [e3, dart, brorl, drive], ids=lambda build: build.__name__)
@pytest.mark.parametrize("floor", [0, 2])
def test_tokens_and_quotas_are_served_too(build, floor):
    policy = build()
    observe(policy, {k: (k % 5) / 4 for k in range(12)})
    costs = np.linspace(10, 40, 12)
    counts = policy.allocate(list(range(12)), Budget(None, tokens=1500, cap=16, floor=floor), costs)
    assert 1400 < counts @ costs <= 1500
    domains = ["math"] * 6 + ["code"] * 6
    quotas = {"math": (60, 64), "code": (0, 40)}
    counts = policy.allocate(list(range(12)), Budget(96, cap=16, floor=floor, quotas=quotas), domains_P=domains)
    assert counts.sum() == 96
    assert 60 <= counts[:6].sum() <= 64


def seen(policy, rates, rollouts=10):
    for i, rate in enumerate(rates):
        passed = round(rate * rollouts)
        policy.observe([i] * rollouts, [1.0] * passed + [0.0] * (rollouts - passed))
    return policy


@pytest.mark.parametrize("make", [vip, gvm, partial(vip, form="dr_grpo"), partial(vip, form="rloo")])
@given(
    prompts=st.integers(1, 13),
    units=st.integers(1, 60),
    floor=st.integers(0, 3),
    cap=st.none() | st.integers(1, 24),
    quantum=st.integers(1, 3),
    min_group=st.integers(1, 4),
    steps=st.integers(0, 3),
)
@settings(deadline=None, max_examples=50)
def test_the_budget_is_spent_on_the_grid(make, prompts, units, floor, cap, quantum, min_group, steps):
    try:
        budget = Budget(units * quantum, floor=floor, cap=cap, quantum=quantum, min_group=min(min_group, floor or 9))
        budget.check(prompts)
    except BudgetError:
        assume(False)
    policy = make(seed=3)
    for _ in range(steps):
        policy.observe([0] * 8 + [1] * 8 + [2] * 4 + [3], [1] * 8 + [0] * 8 + [0.25, 0.5, 1, 0] + [np.nan])
    counts_P = policy.allocate(range(prompts), budget)
    assert counts_P.sum() == budget.rollouts
    assert np.isin(counts_P, budget.grid()).all()
    other = dict(zip(reversed(range(prompts)), policy.allocate(reversed(range(prompts)), budget), strict=True))
    assert [other[i] for i in range(prompts)] == counts_P.tolist()


@pytest.mark.parametrize("make", [vip, gvm])
def test_without_a_floor_a_batch_is_drawn_and_everybody_is_met(make):
    policy, met = seen(make(group=8), [0.5, 0.0, 1.0] + [0.5] * 10), np.zeros(40)
    for _ in range(60):
        counts_P = policy.allocate(range(40), Budget(64, floor=0))
        assert (counts_P > 0).sum() == 8
        met += counts_P > 0
        policy.observe([], [])
    assert met.min() >= 3  # 12 on average


@pytest.mark.parametrize("make", [vip, gvm])
def test_a_drawn_prompt_has_at_least_the_smallest_group(make):
    policy = make(prior=(1e-4, 1e-4), discount=1.0)
    policy.observe(["half"] * 8 + ["solved"] * 8 + ["hopeless"] * 8, [0, 1] * 4 + [1] * 8 + [0] * 8)
    counts_P = policy.allocate(["half", "solved", "hopeless"], Budget(24, floor=0, min_group=4))
    assert counts_P.min() == 4
