"""Which rollouts are kept: known answers, brute force, and what must always hold."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import InputError, group_advantages
from budgetalloc.methods.downselect import (
    balanced,
    extreme_pairs,
    largest_advantages,
    max_variance,
    mixed_first,
    pairwise_extremes,
    resample_on_correct,
    top_p_variance,
    weighted_resample,
)


def batch_variance(ids, rewards, rows):
    return max_variance(ids, rewards, rows, across=True)


def top_p(ids, rewards, rows):
    return top_p_variance(ids, rewards, rows=rows)


RULES = [
    mixed_first,
    balanced,
    largest_advantages,
    max_variance,
    batch_variance,
    pairwise_extremes,
    resample_on_correct,
    top_p,
]
each_rule = pytest.mark.parametrize("rule", RULES)


@st.composite
def batches(draw):
    ids = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=30))
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0, float("nan")]), min_size=len(ids), max_size=len(ids)))
    return ids, rewards, draw(st.integers(1, len(ids)))


@each_rule
@given(batch=batches())
@settings(deadline=None, max_examples=50)
def test_keeps_as_many_different_rows_as_asked_in_order(rule, batch):
    ids, rewards, rows = batch
    kept = rule(ids, rewards, rows)
    assert len(kept) == rows
    assert (np.diff(kept) > 0).all()
    assert kept[0] >= 0
    assert kept[-1] < len(ids)


@given(batch=batches())
@settings(deadline=None, max_examples=50)
def test_mixed_first_keeps_no_equal_row_while_a_mixed_one_is_left(batch):
    ids, rewards, rows = batch
    kept = set(mixed_first(ids, rewards, rows).tolist())
    mixed = {at for at, name in enumerate(ids) if {rewards[k] for k, x in enumerate(ids) if x == name} >= {0.0, 1.0}}
    assert mixed <= kept or kept <= mixed


@each_rule
@pytest.mark.parametrize("rows", [0, 5])
def test_refuses_a_number_of_rows_that_is_not_there(rule, rows):
    with pytest.raises(InputError, match=f"rows={rows}: there are 4 rollouts"):
        rule(["a"] * 4, [0, 1, 0, 1], rows)


@given(
    counts=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(any), min_size=1, max_size=6),
    share=st.floats(0.01, 1),
)
@settings(deadline=None, max_examples=50)
def test_top_p_is_the_smallest_set_of_groups_that_reaches_the_share(counts, share):
    ids = [at for at, (wins, losses) in enumerate(counts) for _ in range(wins + losses)]
    rewards = np.array([x for wins, losses in counts for x in [1.0] * wins + [0.0] * losses])
    variance = [np.var(rewards[np.array(ids) == at], ddof=1) if sum(n) > 1 else 0.0 for at, n in enumerate(counts)]
    kept = sorted({ids[k] for k in top_p_variance(ids, rewards, share)})
    rows = top_p_variance(ids, rewards, share)
    assert len(rows) == sum(sum(counts[at]) for at in kept)  # whole groups
    held = sum(variance[at] for at in kept)
    if not any(variance):
        assert not kept
    else:
        assert held >= share * sum(variance) * (1 - 1e-9)
        assert held - min(variance[at] for at in kept) < share * sum(variance)
        assert min(variance[at] for at in kept) >= max([variance[at] for at in set(ids) - set(kept)], default=0.0)


def test_top_p_fills_up_from_the_groups_without_variance_and_cuts_the_least():
    ids = ["quarter"] * 4 + ["half"] * 4 + ["never"] * 4
    rewards = [0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0]  # variances 1/4, 1/3, 0
    assert top_p_variance(ids, rewards, 0.5).tolist() == [4, 5, 6, 7]  # 57 %
    assert top_p_variance(ids, rewards, 0.6, rows=6).tolist() == [0, 1, 4, 5, 6, 7]
    assert top_p_variance(ids, rewards, 0.5, rows=7).tolist() == [4, 5, 6, 7, 8, 9, 10]
    # Equal rewards are no variance, though the mean of six times 0.1 is not 0.1.
    assert top_p_variance(["a"] * 6 + ["b"] * 6, [0.1] * 6 + [0.7] * 6, 0.9).tolist() == []


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


def successes(positive, n=32, m=16, **kw):
    rewards = np.random.default_rng(positive).permutation([1.0] * positive + [0.0] * (n - positive))
    kept = resample_on_correct(["a"] * n, rewards, m, **kw)
    assert len(kept) == m
    return int(rewards[kept].sum())


@pytest.mark.parametrize(
    ("positive", "kept"),
    # By hand from the released rule, m = 16 of n = 32, at least 2 of each kind; .5 rounds to even.
    [(0, 0), (1, 1), (2, 2), (3, 2), (5, 2), (6, 3), (7, 4), (16, 8), (25, 12), (29, 14), (31, 15), (32, 16)],
)
def test_proportions_are_kept_and_rare_kinds_saved(positive, kept):
    assert successes(positive) == kept


def test_the_cleanest_successes_and_the_first_failures_are_kept():
    rewards = [1, 1, 1, 1, 0, 0, 0, 0]
    penalties = [0.9, 0.1, np.nan, 0.4, 5, 4, 3, 2]  # of failures they do not count
    assert resample_on_correct(["a"] * 8, rewards, 4, penalties).tolist() == [1, 3, 4, 5]
    assert resample_on_correct(["a"] * 8, [1] * 8, 3, penalties).tolist() == [0, 1, 3]


@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_every_group_keeps_its_share_and_both_kinds(data):
    ids = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=40))
    kinds = st.lists(st.sampled_from([0.0, 0.4, 1.0, float("nan")]), min_size=len(ids), max_size=len(ids))
    rewards = np.array(data.draw(kinds))
    rows = data.draw(st.integers(1, len(ids)))
    kept = resample_on_correct(ids, rewards, rows, np.arange(len(ids)) % 3)
    assert len(kept) == rows
    assert (np.diff(kept) > 0).all()
    scored = int((~np.isnan(rewards)).sum())
    for name in set(ids):
        own = rewards[[x == name for x in ids]]
        own = own[~np.isnan(own)]
        mine = rewards[[k for k in kept if ids[k] == name]]
        mine = mine[~np.isnan(mine)]
        assert abs(len(mine) - min(rows, scored) * len(own) / max(scored, 1)) < 1
        if len(mine) >= 4:
            assert (mine > 0).sum() >= min(2, (own > 0).sum())
            assert (mine <= 0).sum() >= min(2, (own <= 0).sum())


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
