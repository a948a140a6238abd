"""Skywork R1V2's buffer: what it stores, the probabilities of draws, and the size of the batch."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from budgetalloc import load_state, save_state
from budgetalloc.errors import InputError, StateError
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer


def filled(advantages, **settings):
    """A buffer with samples of step 0 that have these advantages; the id of each is its index."""
    buffer = SelectiveSampleBuffer(**settings)
    n = len(advantages)
    buffer.add(range(n), [{"at": [at]} for at in range(n)], np.zeros(n), advantages, step=0)
    return buffer


def test_only_rows_with_signal_are_stored():
    buffer = SelectiveSampleBuffer()
    advantages = [0.5, -0.5, 0.5, 0, np.nan, 1e-17]
    assert buffer.add(list("abcdef"), [{}] * 6, [1, 0, np.nan, 1, 1, 0], advantages, step=0) == 2
    assert [(row.id, row.advantage) for row in buffer.samples] == [("a", 0.5), ("b", -0.5)]


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_a_single_draw_is_proportional_to_the_advantage_to_the_power(power):
    size = np.array([0.5, 1.0, 1.5, 2.0])
    buffer = filled(size * [1, -1, 1, -1], power=power)
    drawn = np.bincount([buffer.draw(1, step=1)[0].id for _ in range(4000)], minlength=4)
    assert chisquare(drawn, 4000 * size**power / (size**power).sum()).pvalue > 0.01


def test_two_draws_are_without_replacement():
    weights = np.array([1.0, 2.0, 5.0])
    buffer = filled(weights)
    pairs = list(itertools.permutations(range(3), 2))
    exact = [weights[a] / 8 * weights[b] / (8 - weights[a]) for a, b in pairs]
    drawn = [tuple(row.id for row in buffer.draw(2, step=1)) for _ in range(4000)]
    assert chisquare([drawn.count(pair) for pair in pairs], 4000 * np.array(exact)).pvalue > 0.01


def test_weights_too_small_or_large_for_a_float_are_still_compared():
    buffer = filled([1e-6, 2e-6, 1e300], power=100.0)
    assert [row.id for row in buffer.draw(3, step=1)] == [2, 1, 0]


def test_a_draw_of_more_samples_than_are_stored_returns_all():
    assert SelectiveSampleBuffer().draw(5, step=0) == []
    assert sorted(row.id for row in filled([1, -1, 2]).draw(5, step=1)) == [0, 1, 2]
    assert filled([1]).draw(0, step=1) == []


def test_a_sample_of_this_step_is_not_drawn():
    buffer = filled([1])
    assert buffer.draw(1, step=0) == []
    assert len(buffer.draw(1, step=1)) == 1


batches = st.lists(st.lists(st.sampled_from([0.0, 1e-12, np.nan, 0.5, -2.0]), max_size=8), min_size=1, max_size=8)


@given(batches, st.integers(1, 10), st.integers(1, 3), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_a_batch_keeps_its_size_and_gets_no_stale_samples(steps, capacity, max_age, gap):
    buffer = SelectiveSampleBuffer(capacity=capacity, max_age=max_age)
    for at, advantages in enumerate(steps):
        step = at * gap
        fresh, stored = buffer.refill(advantages, step)
        assert len(fresh) + len(stored) == len(advantages)
        assert len(set(map(id, stored))) == len(stored)
        assert all(1 <= step - row.step <= max_age for row in stored)
        assert (np.diff(fresh) > 0).all()
        signal = {row for row, x in enumerate(advantages) if abs(x) > 1e-8}
        assert signal <= set(fresh.tolist())
        if set(fresh.tolist()) != signal:  # a row without signal stays only where the buffer ran out
            assert len(stored) == sum(row.step < step for row in buffer.samples)
        buffer.add(["a"] * len(advantages), [{}] * len(advantages), [1.0] * len(advantages), advantages, step)
        assert len(buffer) <= capacity
        assert all(step - row.step <= max_age for row in buffer.samples)


def test_equal_seeds_and_histories_give_equal_draws_across_a_resume(tmp_path):
    kept, other = filled(np.arange(1, 20), seed=3), filled(np.arange(1, 20), seed=3)
    for step in range(1, 8):
        save_state(tmp_path / "state.npz", other.state_dict())
        other = SelectiveSampleBuffer(seed=3)
        other.load_state_dict(load_state(tmp_path / "state.npz")[0])
        assert [row.id for row in kept.draw(4, step)] == [row.id for row in other.draw(4, step)]
    draws = [[row.id for row in filled(np.arange(1, 20), seed=seed).draw(4, 1)] for seed in range(3)]
    assert draws[0] != draws[1] != draws[2]


def test_a_state_of_another_seed_or_buffer_is_refused_and_changes_nothing():
    buffer = filled([1, 2])
    with pytest.raises(StateError, match="seed=7"):
        buffer.load_state_dict(SelectiveSampleBuffer(seed=7).state_dict())
    with pytest.raises(StateError, match="correct"):
        buffer.load_state_dict(CorrectResponseBuffer().state_dict())
    state = buffer.state_dict()
    state["buffer/advantages"] = np.zeros(2)
    with pytest.raises(StateError, match="another"):
        buffer.load_state_dict(state)
    assert len(buffer) == 2


def test_nothing_of_a_refused_batch_is_stored():
    buffer = SelectiveSampleBuffer()
    with pytest.raises(InputError, match="token ids"):
        buffer.add(["a", "b"], [{"tokens": [1]}, {"text": "no"}], [1, 0], [1, -1], step=0)
    assert len(buffer) == 0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: SelectiveSampleBuffer(power=-1), "power=-1"),
        (lambda: filled([1]).draw(-1, 1), "count=-1"),
        (lambda: filled([1]).add(["a"], [], [1], [1], 1), "responses_R"),
        (lambda: filled([1]).add(["a"], [{}], [1], [1, 2], 1), "advantages_R"),
        (lambda: filled([1]).add(["a"], [{}], [1], [np.inf], 1), "advantages_R"),
        (lambda: filled([1]).add(["a"], [{}], [1], [0], -1), "step=-1"),
        (lambda: filled([1]).refill([[1]], 1), "advantages_R"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(InputError, match=name):
        call()
