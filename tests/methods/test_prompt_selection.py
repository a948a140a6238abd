"""Batches cut to a budget: as many prompts as fit, and counts in proportion to what they want."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.methods.prompt_selection import batch, drawn_batch, in_proportion, keep_only
from budgetalloc.methods.vip import vip
from budgetalloc.policies.policy import Policy


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
        return in_proportion(keep_only(np.full(len(view.ids_P), 8), chosen), view)

    decided(decide, list(range(8)), budget, costs_P=None if costs is None else [costs] * 8)
    assert sizes == [number]


def test_what_is_left_of_the_tokens_goes_to_the_wanted_prompts_first():
    wanted = np.array([8, 8, 0, 0, 0])
    for tokens, counts in ((20, [10, 10, 0, 0, 0]), (30, [12, 12, 2, 2, 2])):
        budget = Budget(None, tokens=tokens, cap=12, floor=0)
        counts_P = decided(lambda view: in_proportion(wanted[view.ids_P], view), range(5), budget, costs_P=np.ones(5))
        assert counts_P.tolist() == counts


def test_a_batch_has_the_prompts_that_fit():
    view = vip().begin(range(5), Budget(24, floor=0))._view()
    assert [len(drawn_batch(view, group).ids_P) for group in (1, 4, 8, 24, 99)] == [5, 5, 3, 1, 1]
    capped = vip().begin(range(5), Budget(24, floor=0, cap=6))._view()
    assert len(drawn_batch(capped, 24).ids_P) == 4
