"""What the rules share: turns, shares of a fixed number of rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.methods.downselect.groups import scored_first, share_rows, turn


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12), part=st.floats(0, 1))
@settings(deadline=None, max_examples=50)
def test_shares_add_up_and_are_the_exact_share_rounded(sizes, part):
    size_G = np.array(sizes)
    rows = int(part * size_G.sum())
    share_G = share_rows(size_G, rows)
    exact_G = rows * size_G / max(size_G.sum(), 1)
    assert share_G.sum() == rows
    assert (share_G <= size_G).all()
    assert (np.abs(share_G - exact_G) < 1).all()


@given(labels=st.lists(st.integers(0, 3), max_size=20))
@settings(deadline=None, max_examples=50)
def test_a_turn_counts_the_equal_labels_before(labels):
    assert turn(np.array(labels, dtype=np.int64)).tolist() == [labels[:at].count(x) for at, x in enumerate(labels)]


def test_rows_without_a_value_only_fill_up():
    values = np.array([np.nan, 1.0, np.nan, 0.0])
    assert [x.tolist() for x in scored_first(values, 2)] == [[1, 3], []]
    assert [x.tolist() for x in scored_first(values, 4)] == [[1, 3], [0, 2]]
