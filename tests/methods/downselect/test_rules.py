"""Which rollouts are kept: known answers, and what must always hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import InputError
from budgetalloc.methods.downselect import (
    balanced,
    largest_advantages,
    max_variance,
    mixed_first,
    pairwise_extremes,
    resample_on_correct,
    top_p_variance,
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


@given(batch=batches())
@settings(deadline=None, max_examples=50)
def test_balanced_takes_from_every_prompt_before_one_gives_twice_as_many(batch):
    ids, rewards, rows = batch
    kept = balanced(ids, rewards, rows).tolist()
    counts = {name: sum(ids[k] == name for k in kept) for name in set(ids)}
    most = max(counts.values())
    for name, n in counts.items():  # fewer than the others only where the prompt has no more
        assert n >= most - 1 or n == ids.count(name)


def test_balanced_gives_half_successes_where_there_are_enough():
    rng = np.random.default_rng(0)
    ids = np.repeat(["a", "b", "c"], 32)
    rewards = np.concatenate([rng.permutation([1.0] * k + [0.0] * (32 - k)) for k in (1, 16, 30)])
    kept = balanced(ids.tolist(), rewards, 24)
    wins = [int(rewards[kept][ids[kept] == name].sum()) for name in "abc"]
    assert wins == [1, 4, 6]  # of 8 each: 1 + 7, 4 + 4, 6 + 2


def test_balanced_takes_only_a_reward_above_one_half_for_a_success():
    assert balanced(["a"] * 4, [0.45, 0.5, 0.2, 0.9], 2).tolist() == [0, 3]
    assert balanced(["a"] * 3, [0.51, 0.6, 0.5], 2).tolist() == [0, 2]


@each_rule
@pytest.mark.parametrize("rows", [0, 5])
def test_refuses_a_number_of_rows_that_is_not_there(rule, rows):
    with pytest.raises(InputError, match=f"rows={rows}: there are 4 rollouts"):
        rule(["a"] * 4, [0, 1, 0, 1], rows)


def test_a_group_is_cut_to_its_largest_advantages():
    advantages = [0.1, -0.9, 0.5, -0.5, 3.0, 0.0, 0.0, 0.0]
    assert largest_advantages(["a"] * 4 + ["b"] * 4, advantages, 4).tolist() == [1, 2, 4, 5]  # of equal ones the first
    assert largest_advantages(["a"] * 4, [0.1, np.nan, np.nan, 0.2], 3).tolist() == [0, 1, 3]


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


@pytest.mark.parametrize("rule", [largest_advantages, max_variance, batch_variance, pairwise_extremes])
def test_the_order_of_the_rows_does_not_matter_where_none_are_equal(rule):
    rng = np.random.default_rng(0)
    ids, rewards, mixed = np.repeat(list("abcd"), 8), rng.random(32), rng.permutation(32)
    kept = rule(ids.tolist(), rewards, 16)
    assert sorted(mixed[rule(ids[mixed].tolist(), rewards[mixed], 16)].tolist()) == kept.tolist()


@each_rule
def test_a_whole_batch_is_kept_whole(rule):
    rng = np.random.default_rng(1)
    ids, rewards = rng.integers(0, 1024, 8192).tolist(), rng.integers(0, 2, 8192).astype(float)
    assert rule(ids, rewards, 8192).tolist() == list(range(8192))
