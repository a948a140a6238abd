"""Chunks hold whole steps, for parts of any size and a log in any order. Rewards and counts are right."""

import numpy as np
import pytest

from budgetalloc.logs.chunk import Notes, Rows
from budgetalloc.logs.steps import ascending, whole_steps


def rows(steps, names="a", rewards=None, **more):
    ids = [names[at % len(names)] for at in range(len(steps))]
    return Rows(np.array(steps, dtype=np.int64), ids, np.array(rewards or [1.0] * len(steps)), **more)


@pytest.mark.parametrize("chunk", [1, 3, 5, 8, 100])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_chunks_hold_whole_steps_whatever_the_portions(chunk, size):
    steps = np.repeat([0, 1, 4, 5, 9], [3, 1, 6, 2, 4])
    every = rows(steps, "abc", list(range(16)))
    parts = [every.cut(slice(at, at + size)) for at in range(0, 16, size)]
    chunks = list(whole_steps(iter(parts), chunk, Notes()))
    seen = [set(x.step_R.tolist()) for x in chunks]
    assert sum(map(len, seen)) == len(set.union(*seen))  # no step is in two of them
    assert np.concatenate([x.step_R for x in chunks]).tolist() == steps.tolist()
    assert np.concatenate([x.rewards_R for x in chunks]).tolist() == list(range(16))
    assert all(len(x.ids_R) <= chunk + size + 6 for x in chunks)
    assert len(chunks) >= (5 if chunk == size == 1 else 1)


def test_counts_are_those_of_the_prompt_in_its_step():
    (ledger,) = whole_steps(iter([rows([0, 0, 0, 1, 1], "ab")]), 99, Notes())
    assert ledger.ids_R == ["a", "b", "a", "b", "a"]
    assert ledger.counts_R.tolist() == [2, 1, 2, 1, 1]


def test_a_log_that_knows_lengths_in_part_says_so():
    notes = Notes()
    parts = [rows([0, 0], lengths_R=np.array([5, 6])), rows([0])]
    (ledger,) = whole_steps(iter(parts), 99, notes)
    assert ledger.lengths_R.tolist() == [5, 6, -1]
    assert np.isnan(ledger.predicted_R).all()
    assert notes == {"length unknown": 1}


def test_rewards_are_mapped_and_what_is_outside_is_counted():
    notes = Notes()
    part = rows([0] * 6, rewards=[-1, 1, 0, 1 + 1e-7, np.nan, np.inf])
    (ledger,) = whole_steps(iter([part]), 9, notes, (-1.0, 1.0))
    np.testing.assert_array_equal(ledger.rewards_R, [0, 1, 0.5, 1, np.nan, np.nan])
    assert notes == {"row without a reward": 2, "infinite reward": 1, "length unknown": 6}
    notes.clear()
    (ledger,) = whole_steps(iter([part]), 9, notes)
    assert ledger.rewards_R[0] == -1  # left as it is
    assert notes["reward outside [0, 1]"] == 1
    (ledger,) = whole_steps(iter([part]), 9, notes, (0.0, 1.0))
    assert ledger.rewards_R[0] == -1  # neither clipped nor lost
    assert notes["reward outside reward_range"] == 1


def test_rows_out_of_order_are_a_fault_of_the_reader_and_never_pass():
    with pytest.raises(AssertionError, match="ascending"):
        list(whole_steps(iter([rows([1]), rows([0])]), 1, Notes()))
    with pytest.raises(AssertionError, match="ascending"):
        list(whole_steps(iter([rows([1, 0])]), 1, Notes()))


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_log_out_of_order_is_sorted_and_keeps_the_order_within_a_step(chunk):
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 30, 500)
    every = rows(steps, "abcde", np.arange(500.0).tolist(), lengths_R=np.arange(500), predicted_R=np.arange(500) / 500)
    notes = Notes({"of the pass that only looks": 1})
    parts = list(ascending(lambda: iter([every.cut(slice(at, at + 60)) for at in range(0, 500, 60)]), chunk, notes))
    order = np.argsort(steps, kind="stable")
    assert np.concatenate([x.step_R for x in parts]).tolist() == steps[order].tolist()
    assert np.concatenate([x.rewards_R for x in parts]).tolist() == order.tolist()
    assert np.concatenate([x.lengths_R for x in parts]).tolist() == order.tolist()
    assert [name for x in parts for name in x.ids_R] == ["abcde"[at % 5] for at in order.tolist()]
    assert notes == {"steps out of order, sorted": 1}


def test_a_log_in_order_is_not_sorted():
    notes = Notes()
    parts = [rows([0, 0]), rows([0, 2])]
    assert list(ascending(lambda: iter(parts), 1, notes)) == parts
    assert not notes
