"""What is handed out piece by piece: the rest can always be spent."""

import numpy as np
from budgets import budgets
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.policies.spending import Spending


def test_nothing_is_handed_out_that_leaves_a_rest_which_is_no_group():
    given = Spending(Budget(12, floor=0, cap=5, min_group=4), prompts=4)  # only 4 + 4 + 4 will do
    assert [given.give(at, 5) for at in range(3)] == [4, 4, 4]
    assert given.left == 0


@given(
    budget=budgets(13, floors=[0, 2]),
    gifts=st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), unique_by=lambda x: x[0]), max_size=4),
    order=st.permutations(range(13)),
)
@settings(max_examples=50, deadline=None)
def test_many_gifts_at_once_are_those_given_one_by_one(budget, gifts, order):
    at_once, single = Spending(budget, 13), Spending(budget, 13)
    for gift in gifts:
        at_once.give_each([at for at, _ in gift], [wanted for _, wanted in gift])
        for at, wanted in gift:
            single.give(at, wanted)
        assert at_once.counts_P.tolist() == single.counts_P.tolist()
        assert at_once.left == single.left
    resumed = Spending(budget, 13, at_once.counts_P)
    for given_ in (at_once, resumed):
        given_.spread(np.array(order))
    while single.left:
        for at in order:
            single.give(at, budget.quantum)
    assert at_once.counts_P.tolist() == resumed.counts_P.tolist() == single.counts_P.tolist()
    assert at_once.left == 0


def test_what_is_to_be_kept_is_kept():
    given = Spending(Budget(100, floor=0), prompts=4)
    given.give_each([0, 1, 2], 10)
    given.spread(np.array([2, 0]), keep=35)
    assert given.counts_P.tolist() == [27, 10, 28, 0]
    assert given.left == 35
