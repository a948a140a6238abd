"""What a method remembers beside beliefs."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.beliefs.memory import Memory
from budgetalloc.errors import StateError


def counting() -> Memory:
    """Counts visits and steps, and keeps the last mean."""

    def learn(memory, visit):
        memory.columns["visits"][visit.at_V] += 1
        memory.columns["last"][visit.at_V] = visit.mean_V
        memory.numbers["steps"] += 1

    return Memory({"visits": 0.0, "last": np.nan}, learn, {"steps": 0.0})


def test_several_rounds_of_a_step_are_one_visit():
    memory = counting()
    memory.observe(["a", "b"], np.array([1.0, 0.0]))
    memory.observe(["a"], np.array([0.0]))
    memory.tick()
    found = memory.recall(["a", "b", "c"])
    np.testing.assert_array_equal(found["visits"], [1, 1, 0])
    np.testing.assert_array_equal(found["last"], [0.5, 0.0, np.nan])


def test_a_reward_that_is_nan_is_no_visit():
    memory = counting()
    memory.observe(["a"], np.array([np.nan]))
    memory.tick()
    assert len(memory) == 0
    assert memory.numbers == {"steps": 1.0}


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["a", "b", 1]), st.sampled_from([0.0, 1.0, np.nan])), max_size=6), max_size=5
    )
)
def test_a_saved_memory_goes_on_as_the_one_that_never_stopped(steps):
    kept, other = counting(), counting()
    for rows in steps:
        ids_R, rewards_R = [i for i, _ in rows], np.array([r for _, r in rows])
        kept.observe(ids_R, rewards_R)
        other.observe(ids_R, rewards_R)
        state = other.state_dict()  # in the middle of a step
        state["memory"] = json.loads(json.dumps(state["memory"]))
        other = counting()
        other.load_state_dict(state)
        kept.tick()
        other.tick()
    for name, column in kept.recall(["a", "b", 1]).items():
        np.testing.assert_array_equal(column, other.recall(["a", "b", 1])[name])
    assert kept.numbers == other.numbers
    assert kept.step == other.step


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.pop("memory"),
        lambda state: state.pop("memory/last"),
        lambda state: state.update({"memory/last": np.zeros(7)}),
        lambda state: state["memory"]["ids"].append("a"),
        lambda state: state.update(memory=None),
    ],
    ids=["no memory", "no column", "a long column", "an id twice", "None"],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    memory = counting()
    memory.observe(["a", "b"], np.array([1.0, 0.0]))
    memory.tick()
    state = memory.state_dict()
    damage(state)
    with pytest.raises(StateError, match="memory"):
        memory.load_state_dict(state)
    np.testing.assert_array_equal(memory.recall(["a"])["visits"], [1])


def test_a_rule_that_raises_leaves_the_memory_as_it_was():
    def learn(memory, visit):
        memory.columns["seen"][visit.at_V] += visit.scored_V
        memory.numbers["steps"] += 1
        if "bad" in visit.ids_V:
            raise ZeroDivisionError

    memory = Memory({"seen": 0.0}, learn, {"steps": 0.0})
    memory.observe(["a", "b"], np.array([1.0, 0.0]))
    memory.tick()
    before = memory.state_dict()
    memory.observe(["a", "bad"], np.array([1.0, 0.0]))
    with pytest.raises(ZeroDivisionError):
        memory.tick()
    assert memory.state_dict()["memory"] == before["memory"]
    np.testing.assert_array_equal(memory.state_dict()["memory/seen"], before["memory/seen"])
    memory.observe(["c"], np.array([1.0]))
    memory.tick()
    np.testing.assert_array_equal(memory.recall(["a", "b", "c", "bad"])["seen"], [1, 1, 1, 0])
