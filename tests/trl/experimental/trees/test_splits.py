"""How rollouts are divided between fresh ones and branches: known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import InputError
from budgetalloc.trl.experimental.trees import Trees
from budgetalloc.trl.experimental.trees.splits import (
    LATR_COUNTDOWN,
    LATR_MATH,
    aepo_branch_probability,
    aepo_split,
    latr_split,
)


def test_aepo_gives_half_from_scratch_where_entropies_are_equal_and_one_at_least():
    assert aepo_split(16, 1.3, 1.3) == (8, 8)
    assert aepo_split(10, 1.0, 0.0) == (7, 3)  # 10 / (1 + e^-1) = 7.31
    assert aepo_split(10, 3.0, 0.0) == (10, 0)  # 9.53
    assert aepo_split(16, 0, 1e9) == (1, 15)
    assert aepo_split(1, 0, 5) == (1, 0)


@given(st.integers(1, 64), st.floats(0, 20), st.floats(0, 20), st.floats(0, 20))
@settings(deadline=None, max_examples=50)
def test_aepo_spends_all_and_gives_more_from_scratch_the_less_certain_the_start(k, low, high, tool):
    low, high = sorted((low, high))
    m, branches = aepo_split(k, low, tool)
    assert m + branches == k
    assert 1 <= m <= aepo_split(k, high, tool)[0]


def test_branches_in_a_row_make_the_next_less_likely():
    p = aepo_branch_probability(0.5, np.arange(6))
    np.testing.assert_allclose(p, [0.6, 0.45, 0.3, 0.15, 0, 0])
    assert aepo_branch_probability(-9, 9) == 0  # two factors below zero do not make a branch
    assert aepo_branch_probability(99, 0) == 1


def test_latr_trades_trees_for_plain_samples_over_the_run():
    assert [latr_split(8, step, LATR_COUNTDOWN)[0] for step in (0, 9, 10, 19, 20, 79, 80, 199, 200, 10**6)] == [
        *(8, 8, 6, 6, 4, 4, 2, 2, 0, 0)
    ]
    assert [latr_split(4, step, LATR_MATH)[0] for step in (99, 100, 200, 300)] == [4, 3, 2, 1]
    assert [latr_split(5, step, LATR_COUNTDOWN) for step in (0, 10, 20, 80, 200)] == [
        (5, 0),
        (4, 1),
        (3, 2),
        (1, 4),
        (0, 5),
    ]


@pytest.mark.parametrize("roots", [{10: 0.5}, {0: 1.5}, {0.5: 1.0}, {}])
def test_a_schedule_is_checked_where_it_is_given(roots):
    with pytest.raises(InputError, match="roots"):
        Trees(8, roots=roots)
