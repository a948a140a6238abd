"""The rows of verl's batches, which come in the order in which generations ended."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.verl.batches import Sessions

OUTPUTS = st.dictionaries(
    st.tuples(st.sampled_from(["a-1", "b-2", "c_3"]), st.integers(0, 12)), st.integers(1, 3), min_size=1, max_size=9
)


@given(OUTPUTS, st.integers(0, 3), st.randoms())
def test_rollouts_do_not_depend_on_the_order_in_which_they_ended(outputs, padding, random):
    uids = ["c_3", "a-1", "b-2"]
    rows = [
        (f"{u}_{s}_{k}", {"response_len": 10 * s + k, "prompt_len": 5 + s + 100 * k})
        for (u, s), n in outputs.items()
        for k in range(n)
    ]
    rows += [(f"padx_{at}_0", {"response_len": 1, "is_padding": True}) for at in range(padding)]
    random.shuffle(rows)
    keys, tags = zip(*rows, strict=True)
    sessions = Sessions.of(keys, tags, uids)
    expected = sorted(outputs, key=lambda name: (uids.index(name[0]), name[1]))
    assert sessions.uids_R == [uid for uid, _ in expected]
    assert [keys[row] for row in sessions.last_R] == [f"{u}_{s}_{outputs[u, s] - 1}" for u, s in expected]
    assert sessions.lengths_R.tolist() == [sum(10 * s + k for k in range(outputs[u, s])) for u, s in expected]
    assert sessions.prompts_R.tolist() == [5 + s for _, s in expected]  # of the first output
    assert np.sum(sessions.session_K < 0) == padding
    for key, session in zip(keys, sessions.session_K, strict=True):
        assert session == (-1 if key.startswith("pad") else expected.index((key[:3], int(key.split("_")[-2]))))


def test_sessions_that_failed_are_not_there():
    sessions = Sessions.of(["a_3_0"], [{"response_len": 4}], ["gone", "a"])
    assert sessions.uids_R == ["a"]
    assert sessions.lengths_R.tolist() == [4]


def test_without_names_of_groups_they_are_those_of_the_rows_as_they_first_appear():
    keys = ["b_1_0", "pad_0_0", "a_0_0", "b_0_0"]
    tags = [{"response_len": 4}, {"response_len": 1, "is_padding": True}, {"response_len": 2}, {"response_len": 3}]
    sessions = Sessions.of(keys, tags)
    assert sessions.uids_R == ["b", "b", "a"]
    assert sessions.last_R.tolist() == [3, 0, 2]
