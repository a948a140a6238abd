"""The state of a method in addition to the beliefs."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.beliefs.memory import Memory
from budgetalloc.errors import InputError, StateError


def counting() -> Memory:
    """Counts visits and steps, and keeps the last mean."""

    def learn(memory, seen):
        at_P = memory.rows(seen.ids_P)
        memory.columns["visits"][at_P] += 1
        memory.columns["last"][at_P] = seen.mean_P
        memory.numbers["steps"] += 1

    return Memory({"visits": 0.0, "last": np.nan}, learn, {"steps": 0.0})


def learned(memory, ids_R, rewards_R, success_R=None):
    """The memory after a step with these rewards, which are the successes unless others are given."""
    rewards_R = np.array(rewards_R, dtype=np.float64)
    memory.learn(ids_R, rewards_R, rewards_R if success_R is None else np.array(success_R))
    return memory


def test_a_step_is_one_visit():
    memory = learned(counting(), ["a", "b", "a"], [1, 0, 0])
    recalled = memory.recall(["a", "b", "c"])
    np.testing.assert_array_equal(recalled["visits"], [1, 1, 0])
    np.testing.assert_array_equal(recalled["last"], [0.5, 0.0, np.nan])


def test_a_reward_that_is_nan_is_no_visit():
    memory = learned(counting(), ["a"], [np.nan])
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
        state = other.state_dict()
        state["memory"] = json.loads(json.dumps(state["memory"]))
        other = counting()
        other.load_state_dict(state)
        learned(kept, ids_R, rewards_R)
        learned(other, ids_R, rewards_R)
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
    memory = learned(counting(), ["a", "b"], [1, 0])
    state = memory.state_dict()
    damage(state)
    with pytest.raises(StateError, match=r"memory|prompts"):
        memory.load_state_dict(state)
    np.testing.assert_array_equal(memory.recall(["a"])["visits"], [1])


def test_a_rule_that_raises_leaves_the_memory_as_it_was():
    def learn(memory, seen):
        memory.columns["seen"][memory.rows(seen.ids_P)] += seen.n_P
        memory.numbers["steps"] += 1
        if "bad" in seen.ids_P:
            raise ZeroDivisionError

    memory = learned(Memory({"seen": 0.0}, learn, {"steps": 0.0}), ["a", "b"], [1, 0])
    before = memory.state_dict()
    with pytest.raises(ZeroDivisionError):
        learned(memory, ["a", "bad"], [1, 0])
    assert memory.state_dict()["memory"] == before["memory"]
    np.testing.assert_array_equal(memory.state_dict()["memory/seen"], before["memory/seen"])
    learned(memory, ["c"], [1])
    np.testing.assert_array_equal(memory.recall(["a", "b", "c", "bad"])["seen"], [1, 1, 1, 0])


def nothing(memory, seen):
    """A rule that writes nothing."""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"columns": [("x", 0.0)]}, "columns=[('x', 0.0)]: give a mapping from names"),
        ({"columns": {"x": 0.0, 1: 0.0}}, "columns={'x': 0.0, 1: 0.0}: give a mapping from names"),
        ({"columns": {"x": 0.0, "y": "1"}}, "columns={'x': 0.0, 'y': '1'}: every starting value must be a number"),
        ({"columns": {}, "numbers": 3}, "numbers=3: give a mapping from names"),
        ({"columns": {}, "numbers": {"n": None}}, "numbers={'n': None}: every starting value must be a number"),
        ({"columns": {}, "learn": 3}, "learn=3"),
    ],
)
def test_a_bad_argument_is_named(given, text):
    with pytest.raises(InputError, match=re.escape(text)):
        Memory(**({"learn": nothing} | given))


def test_a_rule_gets_the_rollouts_that_have_a_reward_and_a_success():
    rows = []
    memory = Memory({"x": 3.0}, lambda memory, seen: rows.append((seen, memory.rows(seen.ids_P), memory.step)))
    assert memory.columns["x"].tolist() == []
    learned(memory, ["a", "b", "a", "c"], [4, 2, 4, 9], [1.0, 0.5, 0.5, np.nan])
    learned(memory, ["c", "b"], [0, 1])
    (first, at_first, _), (second, at_second, _) = rows
    assert [step for _, _, step in rows] == [0, 1]
    assert (first.ids_P, second.ids_P, memory.ids(), len(memory)) == (["a", "b"], ["c", "b"], ["a", "b", "c"], 3)
    assert (at_first.tolist(), at_second.tolist()) == ([0, 1], [2, 1])
    assert (first.successes_P.tolist(), first.n_P.tolist()) == ([1.5, 0.5], [2, 1])
    assert (first.rewards_R.tolist(), first.prompt_R.tolist()) == ([4, 2, 4], [0, 1, 0])
    assert memory.recall(["b"])["x"].tolist() == [3.0]


def writing(at, value):
    """A rule that writes this value for the second prompt, or into a number."""

    def learn(memory, seen):
        if at in memory.columns:
            memory.columns[at][1] = value
        else:
            memory.numbers[at] = value

    return learn


START = {"zero": 0.0, "nan": np.nan, "two": 2.0, "less": -1.0, "named": 0.0}


@pytest.mark.parametrize(
    ("at", "value", "allowed"),
    [
        *(("zero", 0.0, True), ("zero", -0.5, False), ("zero", np.inf, False), ("zero", np.nan, False)),
        *(("nan", np.nan, True), ("nan", -0.5, False), ("nan", 0.5, True), ("two", 0.0, True), ("two", -0.5, False)),
        *(("less", -1.0, True), ("less", -1.5, False), ("named", -5.0, True), ("named", -5.5, False)),
        *(("n", -3.0, True), ("n", -3.5, False), ("n", np.nan, False)),
        *(("new", 0.0, True), ("new", -0.5, False), ("new", np.inf, False)),
    ],
)
def test_a_rule_may_write_what_a_loaded_state_may_hold(at, value, allowed):
    memory = Memory(START, writing(at, value), {"n": -3.0}, lowest={"named": -5.0})
    if allowed:
        learned(memory, ["a", "b"], [1, 0])
        again = Memory(START, nothing, {"n": -3.0}, lowest={"named": -5.0})
        again.load_state_dict(memory.state_dict())
        np.testing.assert_array_equal(again.columns.get(at, again.numbers.get(at)), memory.columns.get(at, value))
        return
    with pytest.raises(InputError, match=re.escape(f"The memory's rule wrote {at}={value:g}: ")):
        learned(memory, ["a", "b"], [1, 0])
    fine = learned(Memory(START, nothing, {"n": -3.0}), ["a", "b"], [1, 0])
    state = fine.state_dict()
    if at in START:
        state[f"memory/{at}"][1] = value
    else:
        state["memory"]["numbers"][at] = value
    with pytest.raises(StateError, match=rf"holds {at}={value:g}|{at} does not hold"):
        Memory(START, nothing, {"n": -3.0}, lowest={"named": -5.0}).load_state_dict(state)


def test_a_state_without_one_of_the_numbers_is_another_policys():
    state = counting().state_dict()
    del state["memory"]["numbers"]["steps"]
    with pytest.raises(StateError, match=re.escape("lacks the numbers ['steps']")):
        counting().load_state_dict(state)


def test_a_value_that_is_no_state_is_refused():
    for wrong in (None, {1: 2}):
        with pytest.raises(StateError, match="give what `state_dict"):
            counting().load_state_dict(wrong)


def test_the_prompts_that_every_decision_must_see():
    def learn(memory, seen):
        memory.columns["last"][memory.rows(seen.ids_P)] = seen.mean_P

    memory = Memory({"last": 0.0}, learn, hold=lambda columns: columns["last"] > 0.5)
    assert memory.held() == []
    memory.learn(list("aabc"), np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    assert memory.held() == ["c"]
    assert Memory({"last": 0.0}, learn).held() == []
