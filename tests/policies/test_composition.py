"""The decisions of composed policies, and known failures of the released Knapsack RL allocator."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_steps import visited

import budgetalloc as ba
from budgetalloc import Budget, BudgetError, InputError, Point
from budgetalloc.policies.adaptive import sampled
from budgetalloc.policies.composition import least_groups, per_cost, spend
from budgetalloc.policies.interface import View

observed = partial(visited, rollouts=8)
VALUES = [ba.mixed_group, ba.success_gain, ba.pass_at_n, ba.variance]
each_value = pytest.mark.parametrize("value", VALUES, ids=lambda v: v.__name__)


# --- failures of the released Knapsack RL allocator ---


@each_value
@pytest.mark.parametrize("belief", ["posterior", "mean"])
def test_sixteen_prompts_at_one_half(value, belief):
    """The released code stops with "Budget mismatch: expected 128, got 80"."""
    counts_P = observed(ba.knapsack(value=value, belief=belief), [0.5] * 16).allocate(range(16), Budget(rollouts=128))
    assert counts_P.tolist() == [8] * 16


def test_a_cold_prompt_is_not_taken_for_a_hopeless_one():
    policy = observed(ba.knapsack(value=ba.success_gain), [0.0] * 4 + [None] * 4, rollouts=32)
    counts_P = policy.allocate(range(8), Budget(rollouts=64))
    assert counts_P[4:].min() > counts_P[:4].max()


def test_the_solved_prompt_does_not_get_the_surplus():
    """The released code gives 53 rollouts to the one solved prompt among 16."""
    for value, most in ((ba.success_gain, 8), (ba.mixed_group, 10)):
        counts_P = observed(ba.knapsack(value=value), [0.5] * 15 + [1.0]).allocate(range(16), Budget(rollouts=128))
        assert counts_P.sum() == 128
        assert counts_P[15] <= most
    known = observed(ba.knapsack(belief="mean", prior=(1e-9, 1e-9)), [0.5] * 15 + [1.0])
    assert known.allocate(range(16), Budget(rollouts=128))[15] == 2


# --- uniform ---


def test_uniform_is_uniform():
    policy = observed(ba.uniform(), [0.0, 0.5, 1.0, None])
    assert policy.allocate(range(4), Budget(rollouts=32)).tolist() == [8] * 4
    assert sorted(policy.allocate(range(4), Budget(rollouts=34))) == [8, 8, 9, 9]
    assert sorted(policy.allocate(range(4), Budget(rollouts=4, floor=0))) == [0, 0, 2, 2]


def test_uniform_is_uniform_in_tokens_too():
    """Every prompt has the count that all can have, whatever their tokens cost; the rest goes where it suffices."""
    costs_P = np.array([1, 2, 8, 40])
    for tokens, each in ((100, 1), (2000, 39), (20_000, 392)):
        budget = Budget(rollouts=None, tokens=tokens, floor=0, min_group=1, cap=500)
        counts_P = ba.uniform().allocate(["a", "b", "c", "d"], budget, costs_P)
        assert counts_P.min() == each
        assert counts_P @ (costs_P > 2) <= 2 * each + 6


# --- knapsack ---


@each_value
def test_knapsack_is_the_solver_on_the_value_of_the_belief(value):
    policy = observed(ba.knapsack(value=value, prior=(0.7, 0.9)), np.linspace(0, 1, 9).tolist())
    budget = Budget(rollouts=90)
    values_PN = value(policy.belief(range(9)), budget.grid())
    best = ba.certify(values_PN, None, budget).value
    counts_P = policy.allocate(range(9), budget)
    assert values_PN[np.arange(9), counts_P - 2].sum() == pytest.approx(best, abs=1e-6)


def test_knapsack_of_means_is_plug_in():
    policy = observed(ba.knapsack(belief="mean"), [0.1, 0.5, 0.9])
    budget = Budget(rollouts=30)
    means = Point(policy.belief(range(3)).mean)
    counts_P = ba.greedy(ba.mixed_group(means, budget.grid()), None, budget)
    assert sorted(policy.allocate(range(3), budget)) == sorted(counts_P)


# --- thompson ---


def test_thompson_explores_what_knapsack_starves():
    """Over a pool much larger than the budget, the expectation returns to the prompts it knows; the draw does not."""
    visited = {}
    for make in (ba.thompson, ba.knapsack):
        policy = make(value=ba.success_gain, discount=0.7)
        seen = np.zeros(256, dtype=bool)
        for _ in range(100):
            counts_P = policy.allocate(range(256), Budget(rollouts=32, floor=0))
            seen |= counts_P > 0
            policy.observe(np.repeat(np.arange(256), counts_P), np.tile([1, 0, 0, 1, 0, 0, 1, 0], 4))
        visited[make] = int(seen.sum())
    assert visited[ba.thompson] > 3 * visited[ba.knapsack]


# --- the width of the table ---


def view(budget, prompts, costs_P=None):
    belief = ba.Beta(np.full(prompts, 0.5), np.full(prompts, 0.5))
    rng, ids_P, cold_P = np.random.default_rng(0), list(range(prompts)), np.zeros(prompts, dtype=bool)
    return View(belief, budget, costs_P, None, rng, ids_P, cold_P, 0, {}, {}, (0.5, 0.5))


@pytest.mark.parametrize("floor", [0, 2])
def test_a_narrow_table_gives_the_counts_of_the_whole_one(floor):
    """One prompt of sixteen takes far more than the first table holds."""
    budget = Budget(rollouts=1024, floor=floor)
    belief = Point([0.0005] + [0.999999] * 15)
    counts_P = spend(belief, ba.mixed_group, view(budget, 16), None)
    whole = ba.greedy(ba.mixed_group(belief, budget.grid()), None, budget)
    assert counts_P.tolist() == whole.tolist()
    assert counts_P[0] > 900


def test_a_table_beyond_memory_says_so():
    budget = Budget(rollouts=None, tokens=1e12, cap=2 * 10**7)
    with pytest.raises(BudgetError, match=r"pricing 20000000 counts of 16 prompts needs 3 GB\. Set cap=.*cap=64"):
        spend(view(budget, 16).belief_P, ba.pass_at_n, view(budget, 16, np.ones(16)), None)


@pytest.mark.parametrize("build", [ba.uniform, ba.knapsack, ba.thompson, ba.adaptive])
def test_quotas_hold_in_any_order_of_the_prompts(build):
    """Domains follow their prompts through the policy's own order; without the quota they would get something else."""
    policy = build(seed=2)
    ids = [f"p{n}" for n in range(12)]
    domains = ["math" if n % 3 else "code" for n in range(12)]
    policy.observe(np.repeat(ids, 8).tolist(), np.tile([0, 1, 0, 1, 0, 1, 0, 1], 12))
    budget = Budget(rollouts=96, floor=0, cap=16, quotas={"code": (60, 64)})
    counts = policy.allocate(ids, budget, domains_P=domains)
    assert counts.sum() == 96
    assert 60 <= counts[[d == "code" for d in domains]].sum() <= 64
    order = np.random.default_rng(0).permutation(12)
    again = policy.allocate([ids[n] for n in order], budget, domains_P=[domains[n] for n in order])
    assert (again == counts[order]).all()
    free = policy.allocate(ids, Budget(rollouts=96, floor=0, cap=16))
    assert free[[d == "code" for d in domains]].sum() < 60


def test_a_quota_that_needs_more_than_the_first_table_holds():
    """The one prompt of code needs 900 rollouts, and the first table ends at 128."""
    belief, budget = Point([0.5] * 16), Budget(rollouts=1024, floor=0, quotas={"code": (900, 1000)})
    asked = replace(view(budget, 16), domains_P=["code"] + ["math"] * 15)
    counts_P = spend(belief, ba.mixed_group, asked, None)
    assert counts_P.sum() == 1024
    assert counts_P[0] == 900
    with pytest.raises(BudgetError, match="cannot hold for 1 prompts, which take"):
        spend(belief, ba.mixed_group, replace(asked, budget=replace(budget, cap=64)), None)


# --- costs ---

BUDGET = Budget(rollouts=64, floor=0, min_group=1)


def costing(prompt, rollout):
    """Costs of these prompts, by id, as a function for `Policy.begin`."""
    return lambda ids_P, belief_P: (np.array([prompt[x] for x in ids_P]), np.array([rollout[x] for x in ids_P]))


def expected_counts(policy, ids, budget, costs, steps=300):
    """Mean counts over the draws of many steps; nothing is observed."""
    total = np.zeros(len(ids))
    for _ in range(steps):
        step = policy.begin(ids, budget, costs)
        total += step.request()
        step.end()
    return total / steps


# --- groups ---


@given(st.floats(0, 1e5), st.floats(1, 1e4), st.integers(1, 4), st.integers(8, 64))
def test_the_smallest_group_is_near_the_best_of_two_stage_sampling(prompt, rollout, min_group, cap):
    """Brute force: the group that buys the least variance (1 + 1/n) per cost; a power of two is within sqrt(2)."""
    budget = Budget(256, floor=0, min_group=min_group, cap=cap)
    least = int(least_groups(np.array([prompt]), np.array([rollout]), budget)[0])
    sizes = np.arange(min_group, cap + 1)
    waste = (1 + 1 / sizes) * (prompt + rollout * sizes)  # variance of a mean times cost, for a fixed number of groups
    best = waste.min()
    assert budget.smallest_group <= least <= budget.largest_group
    assert waste[least - min_group] <= 1.14 * best or least == 2 ** int(np.log2(cap))


def test_groups_are_multiples_of_the_quantum():
    budget = Budget(60, floor=0, min_group=1, quantum=3)
    assert least_groups(np.array([0.0, 160.0, 640.0]), np.full(3, 10.0), budget).tolist() == [3, 6, 9]


# --- values per cost ---


@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0, 50), st.floats(0.1, 9)), min_size=1, max_size=6))
def test_values_per_cost_stay_concave_from_the_smallest_group_on(prompts):
    rates, once, each = (np.array(x) for x in zip(*prompts, strict=True))
    counts_N = Budget(64, floor=0, min_group=2, cap=32).grid()
    values_PN = per_cost(ba.mixed_group, (once, each))(ba.Point(rates), counts_N)
    slopes = np.diff(values_PN, axis=1) / np.diff(counts_N)
    assert (values_PN[:, 0] == 0).all()
    assert (np.diff(slopes, axis=1) <= 1e-9 * (1 + slopes[:, :1])).all()
    # The first slope is the most that any group of the prompt buys for its cost.
    plain_PN = ba.mixed_group(ba.Point(rates), counts_N)[:, 1:]
    bought = plain_PN / ((once[:, None] + each[:, None] * counts_N[1:]) / each.mean())
    assert slopes[:, 0] == pytest.approx(bought.max(axis=1), rel=1e-5)


# --- policies ---


@pytest.mark.parametrize("make", [ba.adaptive, sampled, ba.knapsack, ba.thompson])
@pytest.mark.parametrize("min_group", [1, 2])
def test_equal_costs_change_no_decision(make, min_group):
    ids, budget = list(range(60)), Budget(96, floor=0, min_group=min_group, cap=16)
    one, other = make(seed=3), make(seed=3)
    for policy in (one, other):
        policy.observe(np.repeat(np.arange(40), 4), np.arange(160) % 3 == 0)
    alike = costing(dict.fromkeys(ids, 0.0), dict.fromkeys(ids, 7.0))
    for _ in range(3):
        assert (one.allocate(ids, budget) == other.allocate(ids, budget, alike)).all()
        assert (one.allocate(ids, budget) == other.allocate(ids, budget, [7.0] * 60)).all()
        for policy in (one, other):
            policy.observe([0], [1])


@pytest.mark.parametrize(("prompt", "rollout", "ratio"), [(0.0, 400.0, 2.0), (400.0, 100.0, 3**0.5)])
def test_counts_are_in_proportion_to_the_root_of_the_cost(prompt, rollout, ratio):
    """Of equal beliefs: a rollout that costs four times as much; a group of 2 that shares a prompt of 4 rollouts."""
    ids = list(range(100))
    costs = costing({n: prompt if n % 2 else 0.0 for n in ids}, {n: rollout if n % 2 else 100.0 for n in ids})
    mean_P = expected_counts(sampled(seed=0), ids, BUDGET, costs)
    assert mean_P[::2].sum() / mean_P[1::2].sum() == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize("make", [ba.adaptive, sampled])
def test_long_prompts_favour_groups_and_short_ones_singles(make):
    ids = list(range(200))
    prompt = {n: 1600.0 if n < 100 else 10.0 for n in ids}
    policy = make(seed=0)
    policy.observe(np.repeat(ids, 8), np.tile([0, 1], 800))
    budget = Budget(256, floor=0, min_group=1, cap=64)
    counts_P = policy.allocate(ids, budget, costing(prompt, dict.fromkeys(ids, 100.0)))
    long, short = counts_P[:100], counts_P[100:]
    assert long[long > 0].min() == 4
    assert short[short > 0].min() == 1


@pytest.mark.parametrize(
    ("costs", "text"),
    [
        (lambda ids, belief: np.ones(3), "costs=.* return two arrays"),
        (lambda ids, belief: 3.0, "costs=3.0: return two arrays"),
        (lambda ids, belief: ([0.0, -1.0], [1.0, 1.0]), "prompt costs=.* at least 0"),
        (lambda ids, belief: ([0.0, 0.0], [1.0, 0.0]), "costs_P=.* positive number"),
        (lambda ids, belief: ([0.0], [1.0, 1.0]), "prompt costs="),
    ],
)
def test_bad_costs_are_named(costs, text):
    with pytest.raises(InputError, match=text):
        ba.adaptive().allocate(["a", "b"], BUDGET, costs)


def test_a_time_limit_is_for_solvers_that_search():
    pytest.importorskip("ortools")
    budget, ids = Budget(rollouts=64, floor=0, quotas={"a": (8, 16)}), range(8)
    domains = ["a", "b"] * 4
    policy = ba.knapsack(solver=ba.ortools, time_limit=5)
    assert policy.allocate(ids, budget, domains_P=domains).sum() == 64
    for wrong in ({"time_limit": 5}, {"solver": ba.greedy, "time_limit": 5}, {"solver": ba.highs, "time_limit": 0}):
        with pytest.raises(InputError, match="time_limit"):
            ba.knapsack(**wrong)


def test_the_name_says_solver_time_limit_and_which_lambda():
    names = [
        ba.knapsack().name,
        ba.knapsack(solver=ba.greedy).name,
        ba.knapsack(solver=ba.highs).name,
        ba.knapsack(solver=ba.highs, time_limit=2.0).name,
        ba.knapsack(value=lambda belief, n: ba.pass_at_n(belief, n)).name,
        ba.knapsack(value=lambda belief, n: ba.variance(belief, n)).name,
        ba.thompson(solver=ba.greedy).name,
        ba.thompson().name,
    ]
    assert len(set(names)) == len(names)
    assert "solver=highs(time_limit=2.0)" in names[3]
