"""AR3PO's response reuse: which prompts get a stored response, which one, and the masks for the trainer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from budgetalloc import group_advantages, load_state, save_state
from budgetalloc.errors import InputError, StateError
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer


def knowing(counts, step=0, **settings):
    """A buffer with `counts` correct responses of each prompt, which are numbered."""
    buffer = CorrectResponseBuffer(**settings)
    ids = [name for name, n in counts.items() for _ in range(n)]
    buffer.add(ids, [{"at": [at]} for at in range(len(ids))], np.ones(len(ids)), step)
    return buffer


def test_a_prompt_without_success_gets_nonzero_advantages():
    ids, rewards = ["a", "a", "a", "b", "b", "b"], [0, 0, 0, 0, 1, 0]
    done = knowing({"a": 1, "b": 1}).substitute(ids, rewards, step=1)
    assert len(done.rows) == len(done.stored) == 1
    assert done.stored[0].id == "a"
    assert done.rows[0] < 3
    before, after = (np.abs(group_advantages(x, ids)) for x in (rewards, done.rewards_R))
    assert (before[:3] == 0).all()
    assert (after[:3] > 0.1).all()
    np.testing.assert_array_equal(before[3:], after[3:])


@pytest.mark.parametrize(("option", "train", "recompute"), [("stop_gradient", False, False), ("recompute", True, True)])
def test_the_option_decides_about_the_mask_and_the_log_probabilities(option, train, recompute):
    done = knowing({"a": 1}, option=option).substitute(["a", "b", "a", "b"], [0, 0, 0, 0], step=1)
    row = int(done.rows[0])
    assert (done.train_R[row], done.recompute_R[row]) == (train, recompute)
    assert np.delete(done.train_R, row).all()
    assert not np.delete(done.recompute_R, row).any()


def test_only_correct_responses_are_stored():
    buffer = CorrectResponseBuffer()
    assert buffer.add(list("abcd"), [{}] * 4, [1, 0.5, np.nan, 0.6], step=0) == 2
    assert [row.id for row in buffer.samples] == ["a", "d"]
    assert CorrectResponseBuffer(threshold=0.3).add(list("abcd"), [{}] * 4, [1, 0.5, np.nan, 0.6], step=0) == 3


def test_success_decides_what_is_correct_and_not_the_total_reward():
    """Rewards of 0.2 for the format, 0.8 for the answer less a length penalty: a total of 0.6 may be a failure."""
    buffer = CorrectResponseBuffer()
    rewards, success = [0.4, 0.6, np.nan, 3.0], [1, 0, 1, np.nan]
    assert buffer.add(list("abcd"), [{}] * 4, rewards, 0, success) == 1
    assert [(row.id, row.reward, row.success) for row in buffer.samples] == [("a", 0.4, 1.0)]
    done = buffer.substitute(["a", "a", "a"], [0.6, 0.2, 0.6], 1, [0, 0, np.nan])
    assert len(done.rows) == 1
    assert done.rows[0] < 2  # not the row without a success
    assert done.rewards_R[done.rows[0]] == 0.4
    assert buffer.substitute(["a", "a"], [0.1, 0.1], 1, [1, 0]).stored == []
    again = CorrectResponseBuffer()
    again.load_state_dict(buffer.state_dict())
    assert again.samples[0].success == 1.0


def test_the_newest_responses_of_a_prompt_are_kept():
    buffer = knowing({"a": 3, "b": 1}, per_prompt=2)
    assert [int(row.response["at"][0]) for row in buffer.samples] == [1, 2, 3]


def test_the_stored_response_and_the_wrong_one_are_drawn_evenly():
    buffer = knowing({"a": 4})
    drawn = [buffer.substitute(["a", "b", "a", "a"], [0, 0, np.nan, 0], step=1) for _ in range(2000)]
    stored = np.bincount([int(done.stored[0].response["at"][0]) for done in drawn], minlength=4)
    assert chisquare(stored).pvalue > 0.01
    wrong = np.bincount([int(done.rows[0]) for done in drawn], minlength=4)
    np.testing.assert_array_equal(wrong[[1, 2]], 0)  # another prompt's, and one without a reward
    assert chisquare(wrong[[0, 3]]).pvalue > 0.01


@pytest.mark.parametrize(
    ("ids", "rewards"),
    [
        (["a", "a"], [0, 1]),
        (["c", "c"], [0, 0]),
        (["a"], [0]),
        (["a", "a"], [0, np.nan]),
        (["a", "a"], [np.nan, np.nan]),
        ([], []),
    ],
    ids=["a success", "nothing stored", "a group of one", "one reward", "no reward", "no rows"],
)
def test_nothing_is_replaced_if_it_would_not_help(ids, rewards):
    done = knowing({"a": 2}).substitute(ids, rewards, step=1)
    assert done.stored == []
    assert done.train_R.all()
    assert not done.recompute_R.any()
    np.testing.assert_array_equal(done.rewards_R, rewards)


rows = st.lists(st.tuples(st.sampled_from(["a", "b", 1, 2]), st.sampled_from([0.0, 0.3, 1.0, np.nan])), max_size=12)


@given(st.lists(rows, max_size=6), st.integers(1, 8), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_every_prompt_that_can_be_helped_is_helped_once(steps, capacity, per_prompt, max_age, gap):
    buffer = CorrectResponseBuffer(capacity=capacity, per_prompt=per_prompt, max_age=max_age)
    for at, batch in enumerate(steps):
        step = at * gap
        ids, rewards = [i for i, _ in batch], np.array([r for _, r in batch], dtype=float)
        done = buffer.substitute(ids, rewards, step)
        known = {row.id for row in buffer.samples}
        expected = set()
        for name in set(ids) & known:
            own = rewards[[i == name for i in ids]]
            own = own[~np.isnan(own)]
            if len(own) >= 2 and not (own > 0.5).any():
                expected.add(name)
        assert len(done.rows) == len(done.stored) == len(expected)
        assert {ids[row] for row in done.rows} == expected
        for row, stored in zip(done.rows, done.stored, strict=True):
            assert stored.id == ids[row]
            assert rewards[row] <= 0.5
            assert done.rewards_R[row] == stored.reward > 0.5
            assert step - stored.step <= max_age
        np.testing.assert_array_equal(np.delete(done.rewards_R, done.rows), np.delete(rewards, done.rows))
        buffer.add(ids, [{}] * len(ids), rewards, step)
        assert len(buffer) <= capacity
        assert all(step - row.step <= max_age for row in buffer.samples)
        assert all(sum(row.id == name for row in buffer.samples) <= per_prompt for name in ids)


def test_the_order_of_prompts_in_a_batch_changes_no_draw():
    names = [*"abcdefgh"]
    orders = [names, names[::-1]]
    runs = []
    for order in orders:
        ids = [name for name in order for _ in range(4)]
        done = knowing(dict.fromkeys(names, 4)).substitute(ids, np.zeros(32), step=1)
        runs.append(
            {ids[row]: (row % 4, int(x.response["at"][0])) for row, x in zip(done.rows, done.stored, strict=True)}
        )
    assert runs[0] == runs[1]
    assert len(runs[0]) == 8


def test_equal_seeds_and_histories_give_equal_draws_across_a_resume(tmp_path):
    kept, other = knowing({"a": 4, "b": 4}, seed=5), knowing({"a": 4, "b": 4}, seed=5)
    for step in range(1, 8):
        save_state(tmp_path / "state.npz", other.state_dict())
        other = CorrectResponseBuffer(seed=5)
        other.load_state_dict(load_state(tmp_path / "state.npz")[0])
        one, two = (x.substitute(["a"] * 4 + ["b"] * 4, np.zeros(8), step) for x in (kept, other))
        np.testing.assert_array_equal(one.rows, two.rows)
        assert [x.response["at"].tolist() for x in one.stored] == [x.response["at"].tolist() for x in two.stored]


def test_a_state_of_another_buffer_is_refused_and_changes_nothing():
    buffer = knowing({"a": 2})
    with pytest.raises(StateError, match="selective"):
        buffer.load_state_dict(SelectiveSampleBuffer().state_dict())
    state = buffer.state_dict()
    state["buffer/success"] = np.array([1.0, 0.5])
    with pytest.raises(StateError, match="another"):
        buffer.load_state_dict(state)
    assert len(buffer) == 2


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: CorrectResponseBuffer(option="mask"), "option='mask'"),
        (lambda: CorrectResponseBuffer(per_prompt=0), "per_prompt=0"),
        (lambda: CorrectResponseBuffer(threshold=np.nan), "threshold=nan"),
        (lambda: knowing({"a": 1}).add(["a"], [], [1], 1), "responses_R"),
        (lambda: knowing({"a": 1}).substitute(["a"], [0, 1], 1), "rewards_R"),
        (lambda: knowing({"a": 1}).substitute(["a"], [0], 1, [0, 1]), "success_R"),
        (lambda: knowing({"a": 1}, step=3).substitute(["a"], [0], 2), "step=2"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(InputError, match=name):
        call()
