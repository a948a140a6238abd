"""Resample on correct: the known answers of the released rule, and what must always hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.methods.downselect import resample_on_correct


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


def test_where_both_kinds_round_up_the_total_stays():
    assert successes(7, n=14, m=7) == 4  # the released code would keep 4 + 4


def test_the_cleanest_successes_and_the_first_failures_are_kept():
    rewards = [1, 1, 1, 1, 0, 0, 0, 0]
    penalties = [0.9, 0.1, np.nan, 0.4, 5, 4, 3, 2]  # of failures they do not count
    assert resample_on_correct(["a"] * 8, rewards, 4, penalties).tolist() == [1, 3, 4, 5]
    assert resample_on_correct(["a"] * 8, [1] * 8, 3, penalties).tolist() == [0, 1, 3]


@given(data=st.data(), drawn=st.booleans())
@settings(deadline=None, max_examples=50)
def test_every_group_keeps_its_share_and_both_kinds(data, drawn):
    ids = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=40))
    kinds = st.lists(st.sampled_from([0.0, 0.4, 1.0, float("nan")]), min_size=len(ids), max_size=len(ids))
    rewards = np.array(data.draw(kinds))
    rows = data.draw(st.integers(1, len(ids)))
    rng = np.random.default_rng(0) if drawn else None
    kept = resample_on_correct(ids, rewards, rows, np.arange(len(ids)) % 3, rng=rng)
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


def test_drawn_successes_follow_the_inverse_of_their_penalty():
    """Computed: weights 1/0.1 and 1/0.4, one kept of two: chances 0.8 and 0.2; of 1,000 groups, s.e. 0.013."""
    ids = np.repeat(np.arange(1000), 4)
    rng = np.random.default_rng(0)
    kept = resample_on_correct(
        ids, [1, 1, 0, 0] * 1000, 2000, [0.1, 0.4, 9, 0] * 1000, min_zero=1, min_positive=1, rng=rng
    )
    share = np.bincount(kept % 4, minlength=4) / 1000
    np.testing.assert_allclose(share, [0.8, 0.2, 0.5, 0.5], atol=0.06)
