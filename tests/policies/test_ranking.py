"""What all rules that rank prompts must keep."""

import numpy as np
import pytest
from budgets import budgets
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.depo import depo
from budgetalloc.methods.gates import gate
from budgetalloc.methods.greso import greso
from budgetalloc.methods.masa import masa
from budgetalloc.methods.mopps import mopps
from budgetalloc.methods.pvpo import pvpo
from budgetalloc.policies.composition import spend
from budgetalloc.policies.ranking import ranked, top

RANKED = {"mopps": mopps, "depo": depo, "greso": greso, "gate": gate, "masa": masa, "pvpo": pvpo}


@given(
    data=st.data(), scores=st.lists(st.floats(1e-9, 1), min_size=1, max_size=30, unique=True), group=st.integers(1, 9)
)
@settings(max_examples=50, deadline=None)
def test_pricing_only_what_can_be_chosen_is_worth_as_much_as_pricing_the_whole_pool(data, scores, group):
    scores_P, budget = np.array(scores), data.draw(budgets(len(scores), floors=[0]))
    view = mopps().begin(list(range(len(scores))), budget)._view()
    value = top(scores_P, group)
    whole, cut = spend(view.belief_P, value, view, None), ranked(scores_P, group, view)
    counts_N, rows = budget.grid(), np.arange(len(scores))
    values_PN = value(view.belief_P, counts_N)
    worth = [values_PN[rows, np.searchsorted(counts_N, counts_P)].sum() for counts_P in (whole, cut)]
    assert worth[1] == pytest.approx(worth[0], rel=1e-9)


def test_the_best_scored_prompts_get_a_group_each():
    scores_P = np.random.default_rng(0).permutation(40) + 1.0
    view = mopps().begin(list(range(40)), Budget(32, floor=0))._view()
    assert ranked(scores_P, 8, view).tolist() == np.where(scores_P > 36, 8, 0).tolist()
    floored = mopps().begin(list(range(4)), Budget(20, floor=2))._view()
    assert ranked(np.array([1.0, 4.0, 3.0, 2.0]), 8, floored).tolist() == [2, 8, 8, 2]


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
