"""The subset of largest variance, against brute force, and D3S' schedule."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.methods.downselect import d3s_schedule, max_variance

values = st.one_of(
    st.sampled_from([0.0, 1.0]), st.sampled_from([0.1, 0.3, 0.3000001]), st.floats(-1e6, 1e6, allow_subnormal=False)
)


@given(values=st.lists(values, min_size=1, max_size=9), data=st.data())
@settings(deadline=None, max_examples=50)
def test_no_subset_of_a_group_or_of_the_batch_varies_more(values, data):
    rows = data.draw(st.integers(1, len(values)))
    best = max(np.var(x) for x in combinations(values, rows))
    scale = max(map(abs, values)) ** 2
    for across, ids in ((False, ["a"] * len(values)), (True, list(range(len(values))))):
        kept = max_variance(ids, values, rows, across=across)
        assert len(kept) == rows
        assert np.var(np.array(values)[kept]) >= best - 1e-8 * (best + 1e-8 * scale)


@given(
    groups=st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=6), min_size=1, max_size=4),
    data=st.data(),
)
@settings(deadline=None, max_examples=50)
def test_every_group_gets_its_share_and_the_best_of_its_subsets(groups, data):
    order = data.draw(st.permutations([(g, x) for g, values in enumerate(groups) for x in values]))
    ids, values = [g for g, _ in order], np.array([x for _, x in order])
    rows = data.draw(st.integers(1, len(ids)))
    kept = max_variance(ids, values, rows)
    assert len(kept) == rows
    for g, own in enumerate(groups):
        mine = [values[k] for k in kept if ids[k] == g]
        assert abs(len(mine) - rows * len(own) / len(ids)) < 1
        if mine:
            assert np.var(mine) >= max(np.var(x) for x in combinations(own, len(mine))) - 1e-12


def test_binary_rewards_are_balanced():
    kept = max_variance(["a"] * 16, [1.0] * 3 + [0.0] * 13, 8)
    assert kept.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]  # exact: 3 of 3 successes, the first 5 failures
    assert max_variance(["a"] * 8, [0, 0, 0, 0, 1, 1, 1, 1], 4).tolist() == [0, 1, 4, 5]
    assert max_variance(["a"] * 8, [0, 0, 0, 0, 1, 1, 1, 1], 3).tolist() == [0, 4, 5]  # one more of the high ones


def test_equal_rewards_keep_the_first_generated_also_where_the_mean_is_not_exact():
    assert max_variance(["a"] * 6, [0.1] * 6, 4).tolist() == [0, 1, 2, 3]


def test_a_group_of_a_small_range_is_not_drowned_by_one_of_a_large_range():
    ids, values = ["a"] * 5 + ["b"] * 5, [1e9, -1e9, 3e8, 7e8, -2e8, 1e-9, 3e-9, 2e-9, 2e-9, 2e-9]
    assert max_variance(ids, values, 4).tolist() == [0, 1, 5, 6]


def test_across_groups_a_rare_success_beats_common_ones_and_equal_groups_go():
    rare, half, never = [7**0.5] + [-(7**-0.5)] * 7, [1.0, -1.0] * 4, [0.0] * 8  # normalised advantages, exact
    ids = ["rare"] * 8 + ["half"] * 8 + ["never"] * 8
    assert max_variance(ids, rare + half + never, 4, across=True).tolist() == [0, 9, 11, 13]  # computed
    assert max_variance(ids, rare + half + never, 16, across=True).max() < 16


@pytest.mark.parametrize("across", [False, True])
def test_rows_without_a_value_come_last(across):
    values = [np.nan, 1.0, 0.0, np.nan, 0.5]
    assert max_variance(["a"] * 5, values, 2, across=across).tolist() == [1, 2]
    assert max_variance(["a"] * 5, values, 4, across=across).tolist() == [0, 1, 2, 4]
    assert max_variance(["a", "b"], [np.nan, np.nan], 1, across=across).tolist() == [0]


def test_the_schedule_is_a_line_between_its_ends():
    assert [d3s_schedule(x, 4, 16) for x in (0, 0.5, 1)] == [4, 10, 16]
