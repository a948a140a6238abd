"""Rows and counts of a step, the rollouts that come back in the order in which they ended, and what they report."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.training.parts import Host
from budgetalloc.training.prompts import Prompts
from budgetalloc.verl.batches import Sessions, fields_of, reports, rows_to_roll_out
from budgetalloc.verl.settings import Settings


class Rows(list):
    """What `Prompts` uses of a `datasets.Dataset`."""

    column_names = ("prompt", "name", "subject")

    def __getitem__(self, at):
        return [row[at] for row in self] if isinstance(at, str) else super().__getitem__(at)


SUBJECTS = ["math", "code", "code", "chat", None]
ROWS = ({"prompt": f"p{at % 5}", "name": f"p_{at % 5}", "subject": SUBJECTS[at % 5]} for at in range(15))
PROMPTS = Prompts(Rows(ROWS), "name")


def decided(candidates, own_ids=("p_0", "p_1", "p_0"), rollouts=12):
    given = {"policy": "thompson", "candidates": candidates, "floor": 2}
    session = Settings.read(given, deviation=True, penalty=False).session
    session.pool = () if candidates == 1 else PROMPTS.pool
    session.begin(own_ids, rollouts, 4)
    return session.step, rows_to_roll_out(session, session.request(), own_ids, None if candidates == 1 else PROMPTS)


@pytest.mark.parametrize(("candidates", "prompts"), [(1, 2), (2, 4), ("all", 5)])
def test_counts_sum_to_the_budget_and_rows_of_a_prompt_take_turns(candidates, prompts):
    step, (rows, ids, counts) = decided(candidates)
    assert len(step.ids_P) == prompts
    assert sum(counts) == 12
    assert len(set(rows)) == len(rows) == len(ids) == len(counts)
    own = ["p_0", "p_1", "p_0"] if candidates == 1 else [f"p_{at % 5}" for at in range(15)]
    assert [own[row] for row in rows] == ids
    of_prompt = Counter()
    for name, count in zip(ids, counts, strict=True):
        of_prompt[name] += count
    assert min(of_prompt[name] for name in step.ids_P) >= 2  # the floor
    for name in of_prompt:
        shares = [count for each, count in zip(ids, counts, strict=True) if each == name]
        shares += [0] * (own.count(name) - len(shares))
        assert max(shares) - min(shares) <= 1


def test_quotas_are_kept_whatever_the_batch_holds():
    shares = {"math": [0.5, 0.75], "code": [0.0, 0.25]}  # lists, as a configuration has them
    given = {"policy": "thompson", "candidates": "all", "domain": "subject", "quotas": shares}
    session = Settings.read(given, deviation=True, penalty=False).session
    session.pool = PROMPTS.pool
    session.attach(Host(PROMPTS, (12,), 6))
    session.begin(["p_1", "p_2"], 12, 6)
    counts = Counter(session.request())
    assert counts.total() == 12
    assert 6 <= counts["p_0"] <= 9
    assert counts["p_1"] + counts["p_2"] <= 3


def test_later_rows_of_a_prompt_do_not_depend_on_what_else_is_requested():
    session = Settings.read({"policy": "ar3po", "floor": 0}, deviation=True, penalty=False).session
    session.pool = PROMPTS.pool
    session.begin(["p_0", "p_1"], 16, 4)

    def rows(ids_R, earlier, name):
        found = zip(*rows_to_roll_out(session, ids_R, [], PROMPTS, earlier), strict=True)
        return [(row, count) for row, own, count in found if own == name]

    alone = rows(["p_1"] * 4, {"p_1": 1}, "p_1")
    assert rows(["p_0"] * 3 + ["p_1"] * 4, {"p_0": 2, "p_1": 1}, "p_1") == alone
    assert sum(count for _, count in alone) == 4
    assert any(rows(["p_1"], {"p_1": turn}, "p_1") != rows(["p_1"], {"p_1": 1}, "p_1") for turn in range(2, 9))


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


def test_without_names_of_groups_they_are_those_of_the_rows_as_they_first_appear():
    keys = ["b_1_0", "pad_0_0", "a_0_0", "b_0_0"]
    tags = [{"response_len": 4}, {"response_len": 1, "is_padding": True}, {"response_len": 2}, {"response_len": 3}]
    sessions = Sessions.of(keys, tags)
    assert sessions.uids_R == ["b", "b", "a"]
    assert sessions.last_R.tolist() == [3, 0, 2]


def test_the_first_place_that_has_a_value_counts():
    extra = {"turns": 3, "api_calls": 2, "reward_extra_info": {"api_calls": 9, "judge_seconds": 0.5}}
    rows = [{"num_turns": 8, "metrics": {"tool_calls": 0.0}, "extra_fields": extra}, {"extra_fields": extra}]
    found = reports(rows, ["turns", "tool_seconds", "api_calls", "judge_seconds", "unknown"])
    assert found == {
        "turns": [8, 3],
        "tool_seconds": [0.0, None],
        "api_calls": [2, 2],
        "judge_seconds": [0.5, 0.5],
        "unknown": [None, None],
    }


@pytest.mark.parametrize("odd", [None, 3, "text", [1]])
def test_fields_of_another_shape_report_nothing(odd):
    row, names = {"num_turns": None, "metrics": odd, "extra_fields": odd}, ["turns", "tool_seconds", "calls"]
    assert reports([row], names) == {name: [None] for name in names}


def test_only_the_fields_that_are_needed_are_fetched():
    assert fields_of([]) == []
    assert fields_of(["calls"]) == ["extra_fields"]
    assert fields_of(["turns", "tool_seconds"]) == ["num_turns", "metrics", "extra_fields"]
