"""The store of the buffers: what it keeps, what its state holds, and how it refuses a damaged state."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import load_state, save_state
from budgetalloc.errors import InputError, StateError
from budgetalloc.trl.experimental.buffers import Store, Stored

steps_of_adding = st.lists(st.lists(st.tuples(st.sampled_from(["a", 1]), st.integers(0, 12)), max_size=5), max_size=6)


@given(steps_of_adding, st.integers(1, 6), st.integers(1, 6), st.none() | st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_the_newest_of_each_prompt_and_of_all_are_kept(batches, capacity, max_age, per_prompt):
    store, all_rows, now = Store("t", capacity=capacity, max_age=max_age, per_prompt=per_prompt), [], 0
    for batch in batches:
        new = [Stored(name, {}, 1, 1, step) for name, step in batch]  # in any order: some generated long ago
        store.put(new)
        all_rows = sorted([*all_rows, *new], key=lambda row: row.step)
        now = max([now, *(row.step for row in new)])
        expected = [
            row
            for at, row in enumerate(all_rows)
            if per_prompt is None or sum(later.id == row.id for later in all_rows[at + 1 :]) < per_prompt
        ][-capacity:]
        expected = [row for row in expected if now - row.step <= max_age]
        assert store.samples == expected  # by identity: the very same rows
        assert store.step == now


def test_a_response_is_kept_up_to_its_last_step():
    store = Store("t", capacity=9, max_age=3)
    store.put([Stored("a", {}, 1, 1, 5)])
    store.advance(8)
    assert len(store.samples) == 1
    store.advance(9)
    assert store.samples == []


def test_a_stored_array_is_a_read_only_copy():
    tokens = np.array([1, 2, 3])
    kept = Stored("a", {"tokens": tokens}, 1, 0, 0).response["tokens"]
    tokens[:] = 0
    np.testing.assert_array_equal(kept, [1, 2, 3])
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 7


dtypes = st.sampled_from(["int32", "int64", "uint8", "float16", "float32", "float64", "bool", ">i4"])
arrays = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 200, size=shape).astype(dtype),
    dtypes,
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(0, 9),
)
samples = st.lists(
    st.builds(
        Stored,
        st.one_of(st.integers(-5, 5), st.text(max_size=3)),
        st.dictionaries(st.sampled_from(["tokens", "logprobs", "mask"]), arrays),
        st.floats(allow_nan=False, allow_infinity=False),
        st.floats(allow_nan=False, allow_infinity=False),
        st.integers(0, 3),
    ),
    max_size=6,
)


def assert_same(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert (type(a.id), a.id, a.reward, a.advantage, a.step) == (type(b.id), b.id, b.reward, b.advantage, b.step)
        assert set(a.response) == set(b.response)
        for name, array in a.response.items():
            other = b.response[name]
            assert (array.dtype, array.shape, array.tobytes()) == (other.dtype, other.shape, other.tobytes())


@given(samples)
@settings(deadline=None, max_examples=20)
def test_a_state_is_restored_to_the_bit_from_a_file(tmp_path_factory, rows):
    store = Store("t", capacity=9, max_age=9, seed=4)
    store.put(rows)
    store.next_rng()
    path = tmp_path_factory.mktemp("state") / "state.npz"
    save_state(path, store.state_dict())
    other = Store("t", capacity=9, max_age=9, seed=4)
    other.load_state_dict(load_state(path)[0])
    assert_same(other.samples, store.samples)
    assert other.step == store.step
    assert other.next_rng().random() == store.next_rng().random()


def test_a_log_probability_that_is_nan_is_restored():
    store = Store("t", capacity=9, max_age=9)
    store.put([Stored("a", {"logprobs": [np.nan, -0.0, -np.inf]}, 1, 1, 0)])
    other = Store("t", capacity=9, max_age=9)
    other.load_state_dict(store.state_dict())
    assert_same(other.samples, store.samples)


def test_a_state_above_the_limits_is_cut_to_the_newest():
    store = Store("t", capacity=9, max_age=9)
    store.put([Stored("a", {}, 1, 1, step) for step in range(5)])
    other = Store("t", capacity=2, max_age=9)
    other.load_state_dict(store.state_dict())
    assert [row.step for row in other.samples] == [3, 4]


def set_in(key, value):
    return lambda state: state.update({key: value})


def change(key):
    """Changes the buffer's JSON part by `key`, a function of it."""
    return lambda state: key(state["buffer"])


DAMAGE = {
    "no buffer": lambda state: state.pop("buffer"),
    "None": set_in("buffer", None),
    "another kind": change(lambda about: about.update(kind="other")),
    "another seed": change(lambda about: about.update(seed=9)),
    "no draws": change(lambda about: about.pop("draws")),
    "negative draws": change(lambda about: about.update(draws=-1)),
    "a step before its rows": change(lambda about: about.update(step=0)),
    "one id more": change(lambda about: about["ids"].append("c")),
    "an id that is none": change(lambda about: about["ids"].__setitem__(0, 1.5)),
    "one column more": change(lambda about: about["columns"].append(["x", "<i8", 1])),
    "a column twice": change(lambda about: about["columns"].append(about["columns"][0])),
    "another type": change(lambda about: about["columns"][0].__setitem__(1, "<i4")),
    "no rewards": lambda state: state.pop("buffer/rewards"),
    "a reward too few": lambda state: state.update({"buffer/rewards": state["buffer/rewards"][:-1]}),
    "a reward that is NaN": lambda state: state.update({"buffer/rewards": state["buffer/rewards"] * np.nan}),
    "steps in no order": lambda state: state.update({"buffer/steps": state["buffer/steps"][::-1].copy()}),
    "steps that are text": set_in("buffer/steps", np.array(["x", "y"])),
    "flat cut short": lambda state: state.update({"buffer/0/flat": state["buffer/0/flat"][:-1]}),
    "flat with two axes": lambda state: state.update({"buffer/0/flat": state["buffer/0/flat"][:, None]}),
    "a negative length": lambda state: state.update({"buffer/0/shapes": state["buffer/0/shapes"] - 9}),
    "no shapes": lambda state: state.pop("buffer/0/shapes"),
    "a row that is not there": lambda state: state.update({"buffer/0/rows": state["buffer/0/rows"] + 1}),
    "a row twice": lambda state: state.update({"buffer/0/rows": state["buffer/0/rows"] * 0}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    store = Store("t", capacity=9, max_age=9)
    store.put([Stored("a", {"tokens": [1, 2]}, 1, 1, 1), Stored("b", {"tokens": [3]}, 1, 1, 2)])
    before, state = store.samples, store.state_dict()
    state["buffer"] = json.loads(json.dumps(state["buffer"]))
    store.load_state_dict(state)  # whole, it loads
    assert_same(store.samples, before)
    before = store.samples
    damage(state)
    with pytest.raises(StateError, match="cannot be loaded"):
        store.load_state_dict(state)
    assert store.samples is before
    assert store.step == 2


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Store("t", capacity=0, max_age=1), "capacity=0"),
        (lambda: Store("t", capacity=1, max_age=0), "max_age=0"),
        (lambda: Store("t", capacity=1, max_age=1, per_prompt=0), "per_prompt=0"),
        (lambda: Store("t", capacity=1, max_age=1, seed=-1), "seed=-1"),
        (lambda: Stored(1.5, {}, 1, 0, 0), "id"),
        (lambda: Stored("a", [1, 2], 1, 0, 0), "response"),
        (lambda: Stored("a", {"text": "hello"}, 1, 0, 0), "token ids"),
        (lambda: Stored("a", {"x": [None]}, 1, 0, 0), "object"),
        (lambda: Stored("a", {}, np.nan, 0, 0), "reward=nan"),
        (lambda: Stored("a", {}, 1, np.inf, 0), "advantage=inf"),
        (lambda: Stored("a", {}, 1, 0, -1), "step=-1"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(InputError, match=name):
        call()


def test_the_step_never_decreases():
    store = Store("t", capacity=1, max_age=1)
    store.advance(4)
    with pytest.raises(InputError, match="step=3: use an integer of at least 4"):
        store.advance(3)
