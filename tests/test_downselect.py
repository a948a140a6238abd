"""Which rollouts are kept: known answers, and what must always hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import InputError
from budgetalloc.downselect import balanced, mixed_first

each_rule = pytest.mark.parametrize("rule", [mixed_first, balanced])


@st.composite
def batches(draw):
    ids = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=30))
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0, float("nan")]), min_size=len(ids), max_size=len(ids)))
    return ids, rewards, draw(st.integers(1, len(ids)))


@each_rule
@given(batch=batches())
@settings(deadline=None)
def test_keeps_as_many_different_rows_as_asked_in_order(rule, batch):
    ids, rewards, rows = batch
    kept = rule(ids, rewards, rows)
    assert len(kept) == rows
    assert (np.diff(kept) > 0).all()
    assert kept[0] >= 0
    assert kept[-1] < len(ids)


@given(batch=batches())
@settings(deadline=None)
def test_mixed_first_keeps_no_equal_row_while_a_mixed_one_is_left(batch):
    ids, rewards, rows = batch
    kept = set(mixed_first(ids, rewards, rows).tolist())
    mixed = {at for at, name in enumerate(ids) if {rewards[k] for k, x in enumerate(ids) if x == name} >= {0.0, 1.0}}
    assert mixed <= kept or kept <= mixed


@given(batch=batches())
@settings(deadline=None)
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


@each_rule
@pytest.mark.parametrize("rows", [0, 5])
def test_refuses_a_number_of_rows_that_is_not_there(rule, rows):
    with pytest.raises(InputError, match=f"rows={rows}: 4 rollouts"):
        rule(["a"] * 4, [0, 1, 0, 1], rows)
