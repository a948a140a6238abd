"""Decisions in rounds: the budget, stop rules, and groups that grow by their own outcomes."""

from functools import partial

import numpy as np
import pytest
from budgets import budgets
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_steps import play

import budgetalloc as ba
from budgetalloc import Budget, BudgetError, Features, InputError, Policy, UnsupportedError, adaptive, policies, uniform
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.methods import on_all_fail
from budgetalloc.methods.table import METHODS
from budgetalloc.policies import growing, sequential
from budgetalloc.policies.rounds import expected_sizes


def test_a_rule_that_asks_for_more_than_the_budget_is_stopped():
    def greedy(view):
        while True:
            yield np.full(len(view.belief_P), 4)

    policy = Policy("greedy one", greedy, BetaEstimator())
    step = policy.begin(["a", "b"], Budget(10, floor=0))
    assert step.request().tolist() == [4, 4]
    with pytest.raises(BudgetError, match="request 16 rollouts"):
        step.request()


def test_further_rounds_need_a_budget_in_rollouts():
    with pytest.raises(UnsupportedError, match="on_all_fail spends rollouts only"):
        on_all_fail(uniform(), lambda ids: None).begin(["a"], Budget(None, tokens=100, cap=8), costs_P=[1.0]).request()


def test_the_second_round_goes_to_prompts_without_a_success_or_to_those_that_a_rule_names():
    rates = {"solved": 1.0, "failed": 0.0}
    counts_NP, _ = play(sequential(uniform(), share=0.5), list(rates), Budget(16), rates)
    assert counts_NP.tolist() == [[4, 4], [0, 8]]
    solved = sequential(uniform(), share=0.5, wants_more=lambda seen: seen.successes_P > 0)
    counts_NP, _ = play(solved, list(rates), Budget(16), rates)
    assert counts_NP.tolist() == [[4, 4], [8, 0]]


@pytest.mark.parametrize(
    ("budget", "share", "first"),
    [
        (Budget(16, floor=0, min_group=4, cap=6), 0.45, 10),  # of 16, 7 fill no groups of 4 to 6
        (Budget(16, floor=4), 0.4, 12),  # the floor of three prompts
        (Budget(16, floor=0, min_group=4), 0.1, 16),  # 1 is no group: all in one round
    ],
)
def test_what_is_kept_for_the_second_round_can_be_spent_in_groups(budget, share, first):
    step = sequential(uniform(), share=share).begin(["a", "b", "c"], budget)
    counts_P = step.request()
    assert counts_P.sum() == first
    ids_R = np.repeat(["a", "b", "c"], counts_P)
    step.observe(ids_R, np.zeros(len(ids_R)))
    assert step.request().sum() == 16 - first


def test_a_rule_of_another_shape_is_refused():
    with pytest.raises(InputError, match=r"wants_more gave shape \(1,\): give True or False for each prompt"):
        play(sequential(uniform(), wants_more=lambda seen: [True]), ["a", "b"], Budget(16), {"a": 0.0, "b": 0.0})


@pytest.mark.parametrize("wrap", [sequential, lambda policy: on_all_fail(policy, lambda ids: ids, fewest=1)])
def test_a_policy_with_a_second_round_keeps_it_when_it_gets_features(wrap):
    policy = wrap(adaptive()).with_features(Features(["a", "b"], [[0.0], [1.0]]))
    step = policy.begin(["a", "b"], Budget(16, floor=0, min_group=1))
    assert step.in_rounds()
    assert step.request().sum() < 16


# --- groups that grow ---


IDS = list(range(13))
GROWING = {method.name: method.build for method in METHODS if method.build(seed=0).needs.by_group} | {
    "uniform": lambda seed: policies.growing(ba.uniform(seed=seed), most=5),
    "adaptive": lambda seed: policies.growing(ba.adaptive(seed=seed), first=3, most=4),
    "mixed": lambda seed: policies.growing(ba.knapsack(seed=seed), wants_more=lambda seen: ~seen.mixed_P),
}


def in_order(policy, budget, outcomes, rng, batch=1):
    """The counts of a step in which `batch` groups end at a time, in random order; and whether a group was extended
    while another was being generated. The k-th rollout of prompt i has `outcomes[i][k]`."""
    step = policy.begin(IDS, budget)
    counts_P, early = step.request(), False
    seen_P, running = np.zeros_like(counts_P), set(np.flatnonzero(counts_P).tolist())
    while running:
        for at in rng.permutation(sorted(running))[:batch].tolist():
            step.observe([at] * (counts_P[at] - seen_P[at]), outcomes[at][seen_P[at] : counts_P[at]])
            seen_P[at] = counts_P[at]
            running.remove(at)
        more_P = step.request(running)
        early = early or bool(more_P.any() and running)
        assert not more_P[list(running)].any()
        counts_P = counts_P + more_P
        running |= set(np.flatnonzero(more_P).tolist())
    step.end()
    return counts_P, early


def of_a_history(build, seed):
    policy = build(seed=seed)
    policy.observe([1, 1, 2, 2, 3, 3], [0, 1, 1, 1, 0, 0])
    return policy


@pytest.mark.parametrize("name", GROWING)
@given(
    budget=budgets(13), seed=st.integers(0, 2**20), batch=st.integers(1, 3), rate=st.sampled_from([0.0, 0.2, 0.6, 1])
)
@settings(max_examples=25, deadline=None)
def test_the_counts_do_not_depend_on_which_groups_end_first(name, budget, seed, batch, rate):
    rng = np.random.default_rng(seed)
    outcomes = (rng.random((13, 200)) < rate * rng.random((13, 1)) ** 0.3).astype(float)
    found = [
        in_order(of_a_history(GROWING[name], seed % 7), budget, outcomes, np.random.default_rng(order), size)
        for order, size in ((0, 13), (1, batch), (2, batch))  # the first in whole rounds
    ]
    for counts_P, _ in found[1:]:
        assert counts_P.tolist() == found[0][0].tolist()
    if of_a_history(GROWING[name], 0).needs.generate == 1:
        assert found[0][0].sum() == budget.rollouts
    assert np.isin(found[0][0], budget.grid()).all()


@pytest.mark.parametrize("name", GROWING)
def test_groups_are_extended_while_others_are_being_generated(name):
    rng = np.random.default_rng(0)
    outcomes = (rng.random((13, 200)) < 0.3).astype(float)
    for floor in (0, 2) if name in ("uniform", "adaptive", "mixed") else (0,):
        budget = Budget(64, floor=floor, cap=40, min_group=1)
        assert in_order(of_a_history(GROWING[name], 1), budget, outcomes, rng)[1]


def test_the_expected_size_is_that_of_all_outcomes():
    """Against simulated rates of the belief Beta(0.4, 2), and groups that do not grow."""
    rng = np.random.default_rng(0)
    p_S = rng.beta(0.4, 2.0, 200_000)
    failed = (rng.random((4, len(p_S))) >= p_S).cumprod(axis=0)  # until the first success
    sizes_S = 1 + failed[0] + failed[1] * 2 + failed[3] * 2  # 1, 2, 4, 6
    belief = ba.Beta([0.4, 0.4], [2.0, 2.0])
    expected = expected_sizes(belief, np.array([1, 3]), np.array([6, 3]))
    assert expected == pytest.approx([sizes_S.mean(), 3.0], rel=0.01)


def test_the_plan_is_as_large_as_the_budget_can_be_expected_to_start():
    """With half of the prompts solved at once, groups that need 2 of 8 rollouts leave enough for twice as many."""
    policy = policies.growing(ba.uniform(), first=2, most=8)
    policy.observe([x for x in range(400) for _ in range(20)], [float(x % 2) for x in range(400) for _ in range(20)])
    counts_NP, _ = play(policy, list(range(400)), Budget(800, floor=0), {x: x % 2 for x in range(400)})
    assert counts_NP.sum() == 800
    started = (counts_NP.sum(axis=0) > 0).sum()
    assert 150 <= started <= 170  # 800 / ((2 + 8) / 2)
    assert len(counts_NP) <= 8


@given(
    budget=budgets(13),
    seed=st.integers(0, 2**20),
    rate=st.sampled_from([0.0, 0.2, 0.6, 1]),
    rounds=st.integers(2, 4),
    first=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_a_step_has_at_most_so_many_rounds_and_spends_its_budget(budget, seed, rate, rounds, first):
    policy = policies.growing(ba.adaptive(seed=seed % 7), first=first, rounds=rounds)
    assert not policy.needs.by_group
    rng = np.random.default_rng(seed)
    rates = dict(enumerate((rate * rng.random(13) ** 0.3).tolist()))
    counts_NP, _ = play(policy, IDS, budget, rates)
    assert len(counts_NP) <= rounds
    assert counts_NP.sum() == budget.rollouts
    assert np.isin(counts_NP.sum(axis=0), budget.grid()).all()


def test_the_last_round_is_for_groups_that_want_more_and_then_for_new_ones():
    policy = policies.growing(ba.uniform(), most=4, rounds=2)
    step = policy.begin(range(8), Budget(14, floor=0))
    first_P = step.request()
    started = np.flatnonzero(first_P).tolist()
    step.observe(np.repeat(started, 2), np.repeat([0.0, *[1.0] * (len(started) - 1)], 2))
    more_P = step.request()
    assert more_P[started].tolist() == [2] + [0] * (len(started) - 1)
    assert first_P.sum() + more_P.sum() == 14


def test_what_cannot_grow_is_refused():
    with pytest.raises(UnsupportedError, match="needs a policy that decides once a step"):
        policies.growing(ba.methods.hora()).begin(["a", "b"], Budget(16)).request()
    with pytest.raises(InputError, match="most"):
        policies.growing(ba.uniform(), first=4, most=3)
    with pytest.raises(InputError, match=r"running=\['a'\]: uniform.* waits for all rollouts"):
        ba.uniform().begin(["a"], Budget(2)).request(running=["a"])


def test_a_second_round_around_a_growing_policy_waits_for_all():
    policy = sequential(GROWING["uniform"](seed=0))
    assert not policy.needs.by_group
    counts_NP, _ = play(policy, IDS, Budget(64, floor=0), dict.fromkeys(IDS, 0.4))
    assert counts_NP.sum() == 64


@pytest.mark.parametrize("wrap", [partial(growing, rounds=3), growing, sequential])
@pytest.mark.parametrize(
    "budget",
    [
        Budget(64, floor=0, min_group=1),
        Budget(64, floor=0, quotas={"a": (12, 24), "b": (0, 64)}),
        Budget(rollouts=None, tokens=900, floor=0, cap=16),
    ],
    ids=["rollouts", "quotas", "tokens"],
)
def test_without_rewards_within_the_step_the_counts_are_those_of_the_policy_inside(wrap, budget):
    policy, wrapped = ba.adaptive(seed=3), wrap(ba.adaptive(seed=3))
    ids, given = list(range(30)), {}
    if budget.quotas:
        given = {"domains_P": ["a" if at % 3 else "b" for at in ids]}
    if budget.tokens:
        given = {"costs_P": np.full(30, 10.0)}
    for each in (policy, wrapped):
        each.observe(ids[:20], [float(at % 2) for at in ids[:20]])
    assert wrapped.allocate(ids, budget, **given).tolist() == policy.allocate(ids, budget, **given).tolist()
    step = wrapped.begin(ids, budget, **given)
    assert step.in_rounds() == (budget.quotas is None and budget.tokens is None)
    assert not step.again().once
    assert wrapped.begin(ids, budget, once=True, **given).again().once
