"""What the rules of methods share: orders, batches, epochs, and the mean advantage of groups."""

import itertools

import numpy as np
import pytest
from budgets import budgets
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_steps import seen

from budgetalloc import Budget, group_advantages
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.methods import depo, gate, greso, gvm, masa, mopps, pvpo, reinforce_pp, vip
from budgetalloc.methods.rules import batch, in_proportion, mean_advantage, ranked
from budgetalloc.policies.composition import spend, top
from budgetalloc.policies.policy import Policy

RANKED = {"mopps": mopps, "depo": depo, "greso": greso, "gate": gate, "masa": masa, "pvpo": pvpo}


@given(
    data=st.data(), scores=st.lists(st.floats(1e-9, 1), min_size=1, max_size=30, unique=True), group=st.integers(1, 9)
)
@settings(max_examples=50, deadline=None)
def test_pricing_only_what_can_be_chosen_is_worth_as_much_as_pricing_the_whole_pool(data, scores, group):
    scores_P, budget = np.array(scores), data.draw(budgets(len(scores), floors=[0]))
    step = mopps().begin(list(range(len(scores))), budget)
    view = step._view_of(step._shuffled, step._order_P)
    value = top(scores_P, group)
    whole, cut = spend(view.belief_P, value, view, None), ranked(scores_P, group, view)
    counts_N, rows = budget.grid(), np.arange(len(scores))
    values_PN = value(view.belief_P, counts_N)
    worth = [values_PN[rows, np.searchsorted(counts_N, counts_P)].sum() for counts_P in (whole, cut)]
    assert worth[1] == pytest.approx(worth[0], rel=1e-9)


@pytest.mark.parametrize("name", RANKED)
def test_under_tokens_the_order_does_not_depend_on_what_a_rollout_costs(name):
    costs_P = np.where(np.arange(20) % 2, 1.0, 5.0)
    dear = 0
    for seed in range(20):
        policy = RANKED[name](seed=seed)
        counts_P = policy.allocate(list(range(20)), Budget(None, tokens=160, floor=0, cap=16), costs_P=costs_P)
        assert counts_P @ costs_P <= 160
        dear += (counts_P[::2] > 0).sum()
    assert dear > 20 * (2 if name == "pvpo" else 1)  # cheap first would leave them nothing: 10 groups at a price of 1


def decided(decide, ids, budget, **more):
    return Policy("test", decide, BetaEstimator()).allocate(ids, budget, **more)


@given(
    wants=st.lists(st.integers(2, 12), min_size=1, max_size=10),
    few=st.integers(0, 10),
    costs=st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_wants_that_add_up_are_met_exactly_in_rollouts_and_in_tokens(wants, few, costs):
    zero = [0] * few
    wanted = np.array([*wants, *zero])
    ids = list(range(len(wanted)))
    total = int(wanted.sum())
    budget = Budget(None, tokens=total, cap=64, floor=0) if costs else Budget(total, floor=0)
    more = {"costs_P": np.ones(len(ids))} if costs else {}
    counts = decided(lambda view: in_proportion(wanted[np.array(view.ids_P)], view), ids, budget, **more)
    assert counts.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("budget", "costs", "number"),
    [
        (Budget(20, floor=0), None, 2),
        (Budget(7, floor=0), None, 1),  # nobody fits: one all the same
        (Budget(20, floor=0, cap=4), None, 5),
        (Budget(22, floor=2), None, 1),  # 2 each, and 6 more for one
        (Budget(None, tokens=160, cap=8, floor=0), 10.0, 2),
        (Budget(None, tokens=280, cap=8, floor=2), 10.0, 2),  # 160 for the floor, 60 more for each
        (Budget(20, tokens=1000, cap=8, floor=0), 10.0, 3),  # two would hold 16 under the cap
    ],
)
def test_a_batch_is_as_large_as_the_budget_has_room_for(budget, costs, number):
    sizes = []

    def decide(view):
        chosen = batch(np.full(len(view.ids_P), 8), view)
        sizes.append(len(chosen))
        return in_proportion(np.full(len(view.ids_P), 8), view, chosen)

    decided(decide, list(range(8)), budget, costs_P=None if costs is None else [costs] * 8)
    assert sizes == [number]


@pytest.mark.parametrize("make", [vip, gvm])
def test_without_a_floor_a_batch_is_drawn_and_every_prompt_has_its_turn(make):
    policy, met = seen(make(group=8), [0.5, 0.0, 1.0] + [0.5] * 10), np.zeros(40)
    for _ in range(60):
        counts_P = policy.allocate(range(40), Budget(64, floor=0))
        assert (counts_P > 0).sum() == 8
        met += counts_P > 0
        policy.observe([], [])
    assert met.min() >= 3  # 12 on average


def orders(seed, epochs=3, prompts=12, step=4):
    """The prompts of each epoch, in the order of their steps."""
    policy = reinforce_pp(seed=seed)
    met = []
    for _ in range(epochs * prompts // step):
        counts_P = policy.allocate(range(prompts), Budget(rollouts=step, floor=0, min_group=1))
        assert counts_P.max() == 1
        met.append(np.flatnonzero(counts_P).tolist())
        policy.observe(met[-1], [0] * step)
    return [met[k : k + prompts // step] for k in range(0, len(met), prompts // step)]


def test_every_epoch_holds_every_prompt_once_in_another_order():
    for epoch in orders(0):
        assert sorted(x for step in epoch for x in step) == list(range(12))
    assert orders(0)[0] != orders(0)[1]
    assert orders(0) == orders(0) != orders(1)


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("values", [(0.0, 1.0), (0.2, 1.0), (-3.0, 2.5), (0.0, 0.5, 1.0)], ids=str)
def test_the_mean_advantage_is_that_of_the_group(n, values):
    """Enumerated: the advantages of each possible group, divided by its deviation."""
    for rewards in itertools.product(values, repeat=n):
        advantages, spread = group_advantages(rewards, ["x"] * n, scale="none"), np.std(rewards)
        expected = np.abs(advantages).mean() / spread if len(set(rewards)) > 1 else 0.0
        group_R = np.zeros(n, dtype=np.int64)
        assert mean_advantage(rewards, group_R, 1) == pytest.approx([expected], rel=1e-12)
