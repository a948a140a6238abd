"""The ledger, read as a stream: resumes, damaged lines, unknown columns, steps out of order."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import read_log


def append(path, steps, reward=1.0, ids=("a", 7)):
    log = ba.LedgerWriter(path)
    for step in steps:
        log.append(step, list(ids), [reward] * len(ids), [5] * len(ids), [0.25] * len(ids), [1] * len(ids))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=6))
def test_of_a_run_resumed_at_random_each_step_counts_as_it_ran_last(tmp_path_factory, stretches):
    path = tmp_path_factory.mktemp("run") / "l"
    kept = {}
    for at, (start, steps) in enumerate(stretches):
        start = min(start, max(kept, default=-1) + 1)
        ba.LedgerWriter(path).resume(start)
        kept = {step: x for step, x in kept.items() if step < start}
        append(path, range(start, start + steps), reward=at / 10)
        kept |= dict.fromkeys(range(start, start + steps), at / 10)
    log = read_log(path)
    assert "steps out of order, sorted" not in log.notes  # a resume is no disorder
    assert dict(zip(log.frame.step, log.frame.reward, strict=True)) == kept
    assert len(log) == 2 * len(kept)


def test_void_rows_broken_lines_and_unknown_columns_are_counted(tmp_path):
    path = tmp_path / "l"
    append(path, [0, 1, 2])
    row = {"step": 3, "id": "a", "reward": 1.0, "length": 5, "predicted": None, "count": 1}
    odd = [
        json.dumps(row | {"note": "x"}),
        json.dumps(row | {"id": None}),
        json.dumps(row | {"reward": "high"}),
        json.dumps({k: v for k, v in row.items() if k != "length"}),
        json.dumps([1, 2]),
        '{"step": 3, "id": "a", "rew',
        '{"resumed": null}',
        "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
        "[" * 100_000,
        "",
        "   ",
    ]
    with path.open("a") as file:
        file.write("\n".join(odd) + "\n")
    ba.LedgerWriter(path).resume(2)
    append(path, [2])
    log = read_log(path)
    ledger = log
    assert ledger.frame.step.tolist() == [0, 0, 1, 1, 2, 2]
    assert log.notes["row voided by a resume"] == 6  # three of them are broken
    assert (log.notes["broken row"], log.notes["row without a prompt"]) == (4, 1)
    append(path, [3])
    with path.open("a") as file:
        file.write(odd[0] + "\n")
    log = read_log(path)
    assert len(log) == 9
    assert log.notes["unknown column 'note'"] == 1  # another one is void


def test_a_packed_ledger_reads_alike_and_a_torn_one_as_far_as_it_goes(tmp_path):
    append(tmp_path / "l", range(5000))
    packed = gzip.compress((tmp_path / "l").read_bytes())
    (tmp_path / "whole.jsonl.gz").write_bytes(packed)
    assert len(read_log(tmp_path / "whole.jsonl.gz")) == 10_000
    (tmp_path / "torn.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    log = read_log(tmp_path / "torn.jsonl.gz")
    assert 2000 < len(log) < 8000
    assert log.notes["file that ends early"] == 1


def test_any_writers_json_is_read(tmp_path):
    """Spaces, the order of keys, escapes and repeated keys do not matter."""
    lines = [
        '{ "step" : 1, "id" : "a", "reward" : 1, "length" : 1, "predicted" : null, "count" : 1 }',
        '{"id": "\\"step\\": 9", "step": 3, "reward": 1, "length": 1, "predicted": null, "count": 1}',
        '{"\\u0073tep": 2, "id": "a", "reward": 1, "length": 1, "predicted": null, "count": 1}',
        '{"step": 9, "id": "a", "reward": 1, "length": 1, "predicted": null, "count": 1, "step": 0}',
    ]
    (tmp_path / "l").write_text("\n".join(lines) + "\n")
    log = read_log(tmp_path / "l")
    assert log.frame.step.tolist() == [0, 1, 2, 3]
    assert log.notes == {"steps out of order, sorted": 1}


def test_a_ledger_has_its_own_reward_and_success(tmp_path):
    append(tmp_path / "l", [0])
    for argument in ("reward", "success"):
        with pytest.raises(InputError, match=f"{argument}='x': .* is a ledger"):
            read_log(tmp_path / "l", **{argument: "x"})
    ledger = read_log(tmp_path / "l", prompt="x")  # the run has used it, and the file has the ids
    assert len(ledger) == 2


def test_a_second_run_in_the_file_is_said_in_the_first_lines(tmp_path, caplog):
    from budgetalloc.training.log_writer import LogWriter

    path = tmp_path / "ledger.jsonl"
    for run in range(2):
        caplog.clear()
        with caplog.at_level("WARNING"):
            LogWriter(path, 0, lambda ids: {}).ledger.append(0, ["a"], [float(run)], [1], [0.5], [1])
        assert [str(path) in x.message and "its own path" in x.message for x in caplog.records] == [True] * run
    log = read_log(path)
    assert log.frame.reward.tolist() == [1.0]
    assert [log.notes[text] for text in log.notes.doubts] == [1]
    assert "earlier run in the same file" in log.notes.doubts[0]
    caplog.clear()
    LogWriter(path, 1, lambda ids: {})  # a resume is no second run
    assert not caplog.records


@pytest.mark.parametrize("stated", [True, False])
def test_rows_that_a_resume_repeats_are_no_earlier_run(tmp_path, stated):
    more = {"success_R": [1.0]} if stated else {}
    writer = ba.LedgerWriter(tmp_path / "ledger.jsonl")
    for step in (3, 4, 5, 4, 5):
        if step == 4:
            writer.resume(4)
        writer.append(step, ["a"], [1.0], [1], [0.5], [1], **more)
    log = read_log(tmp_path / "ledger.jsonl")
    assert log.frame.step.tolist() == [3, 4, 5]
    assert (log.notes["row voided by a resume"], log.notes.doubts) == (2, [])
