"""Shuffle-R1: pairs of extremes, and draws by weight that never fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import group_advantages
from budgetalloc.methods.downselect import extreme_pairs, pairwise_extremes, weighted_resample


@pytest.mark.parametrize("successes", range(17))
def test_four_of_eight_pairs_hold_as_many_mixed_ones_as_there_can_be(successes):
    """Known answer: with k successes of 16, min(4, k, 16 - k) of the 4 pairs kept are mixed."""
    rewards = np.random.default_rng(successes).permutation([1.0] * successes + [0.0] * (16 - successes))
    pairs_J2 = extreme_pairs(["a"] * 16, group_advantages(rewards, ["a"] * 16), 8)
    assert pairs_J2.shape == (4, 2)
    assert len(set(pairs_J2.ravel().tolist())) == 8
    assert (rewards[pairs_J2[:, 0]] - rewards[pairs_J2[:, 1]]).sum() == min(4, successes, 16 - successes)


@given(
    ids=st.lists(st.sampled_from("abc"), min_size=1, max_size=20),
    data=st.data(),
)
@settings(deadline=None, max_examples=50)
def test_pairs_are_the_k_th_largest_with_the_k_th_smallest(ids, data):
    number = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 2.0, float("nan")])
    advantages = np.array(data.draw(st.lists(number, min_size=len(ids), max_size=len(ids))))
    rows = data.draw(st.integers(1, len(ids)))
    pairs_J2 = extreme_pairs(ids, advantages, rows)
    for name in set(ids):
        own = np.sort([x for x, y in zip(advantages, ids, strict=True) if y == name and x == x])[::-1]
        mine = advantages[[pair for pair in pairs_J2 if ids[pair[0]] == name]].reshape(-1, 2)
        assert sorted(map(tuple, mine)) == sorted((own[k], own[-1 - k]) for k in range(len(mine)))
    kept = pairwise_extremes(ids, advantages, rows)
    assert len(kept) == rows
    assert (np.diff(kept) > 0).all()
    assert set(pairs_J2.ravel().tolist()) <= set(kept.tolist())


def test_an_odd_row_and_groups_of_one_are_filled_up_by_size():
    assert pairwise_extremes(["a"] * 4, [1.5, -0.5, -0.6, -0.4], 3).tolist() == [0, 1, 2]
    assert pairwise_extremes(["a", "b", "c"], [0.1, -2.0, np.nan], 2).tolist() == [0, 1]
    assert extreme_pairs(["a", "b", "c"], [0.1, -2.0, 1.0], 2).shape == (0, 2)


def test_an_entry_comes_up_once_a_draw_at_most():
    drawn = weighted_resample([1e9, 1.0, 1e-9, 1.0], 6, draws=3, rng=np.random.default_rng(1))
    counts = np.bincount(drawn, minlength=4)
    assert counts[0] == 3  # sure to be in every draw
    assert counts.max() == 3
    assert counts[2] == 0


def test_multiplicity_follows_the_weights():
    """Computed: one entry a draw comes up in proportion to its weight; standard error 0.01."""
    rng = np.random.default_rng(0)
    drawn = weighted_resample([1.0, 3.0, 0.0, 4.0], 2000, draws=2000, rng=rng)
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 2000, [1 / 8, 3 / 8, 0, 4 / 8], atol=0.04)


@given(positive=st.integers(0, 6), zero=st.integers(0, 6), draws=st.integers(1, 5), data=st.data())
@settings(deadline=None, max_examples=50)
def test_too_few_positive_weights_are_all_taken_and_never_fail(positive, zero, draws, data):
    if positive + zero == 0:
        return
    size = data.draw(st.integers(1, draws * (positive + zero)))
    weights = np.r_[np.arange(positive) + 1e-300, np.zeros(zero)]
    weights[:positive] += 1.0
    drawn = weighted_resample(weights, size, draws=draws, rng=np.random.default_rng(0))
    assert len(drawn) == size
    assert (np.diff(drawn) >= 0).all()
    assert np.bincount(drawn).max() <= draws
    each = [size // draws + (k < size % draws) for k in range(draws)]
    assert (drawn < positive).sum() == sum(min(n, positive) for n in each)
