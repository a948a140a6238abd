"""Writing the ledger: append only, whole after a kill, each step once after a resume."""

import json
import math

import numpy as np
import pytest

import budgetalloc as ba


def write(path, steps, reward=1.0):
    log = ba.LedgerWriter(path)
    for step in steps:
        log.append(step, ["a", 7], [reward, math.nan], [5, 6], [0.25, 0.5], [1, 1])
    return log


def test_what_is_written_is_read(tmp_path):
    write(tmp_path / "deep" / "ledger.jsonl", [0, 1])
    ledger = ba.Ledger.read(tmp_path / "deep" / "ledger.jsonl")
    assert ledger.step_R.tolist() == [0, 0, 1, 1]
    assert ledger.ids_R == ["a", 7, "a", 7]
    assert np.isnan(ledger.rewards_R).tolist() == [False, True, False, True]
    assert ledger.lengths_R.tolist() == [5, 6, 5, 6]
    assert ledger.predicted_R.tolist() == [0.25, 0.5, 0.25, 0.5]
    assert ledger.counts_R.tolist() == [1, 1, 1, 1]
    assert ledger.broken == 0


def test_every_line_is_json_that_other_tools_read(tmp_path):
    write(tmp_path / "l", [0])
    first, second = [json.loads(line) for line in (tmp_path / "l").read_text().splitlines()]
    assert first == {"step": 0, "id": "a", "reward": 1.0, "length": 5, "predicted": 0.25, "count": 1}
    assert second["reward"] is None


def test_a_torn_line_costs_one_line(tmp_path):
    path = tmp_path / "l"
    write(path, [0, 1])
    path.write_bytes(path.read_bytes()[:-20])  # killed in the middle of a write
    write(path, [2])
    ledger = ba.Ledger.read(path)
    assert ledger.step_R.tolist() == [0, 0, 1, 2, 2]
    assert ledger.broken == 1


def test_resumed_steps_are_taken_once(tmp_path):
    path = tmp_path / "l"
    write(path, [0, 1, 2, 3])
    ba.LedgerWriter(path).resume(2)
    write(path, [2, 3, 4], reward=0.0)
    ledger = ba.Ledger.read(path)
    assert ledger.step_R.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert ledger.rewards_R[::2].tolist() == [1, 1, 0, 0, 0]
    assert len(path.read_text().splitlines()) == 15  # nothing was deleted


def test_resumed_twice_and_torn_in_between_each_step_counts_once(tmp_path):
    path = tmp_path / "l"
    write(path, [0, 1, 2, 3], reward=0.0)
    ba.LedgerWriter(path).resume(2)
    write(path, [2, 3], reward=0.25)
    path.write_bytes(path.read_bytes()[:-30])  # killed while step 3 was written
    ba.LedgerWriter(path).resume(3)
    write(path, [3, 4, 5], reward=0.5)
    ba.LedgerWriter(path).resume(1)  # from an older checkpoint
    write(path, [1, 2], reward=1.0)
    ledger = ba.Ledger.read(path)
    assert ledger.step_R.tolist() == [0, 0, 1, 1, 2, 2]
    assert ledger.rewards_R[::2].tolist() == [0, 1, 1]
    assert ledger.broken == 1


def test_a_run_restarted_from_zero_voids_the_one_before(tmp_path):
    path = tmp_path / "l"
    ba.LedgerWriter(path).resume(0)
    assert not path.exists()  # nothing to void
    write(path, [0, 1, 2], reward=0.0)
    ba.LedgerWriter(path).resume(0)
    write(path, [0], reward=1.0)
    ledger = ba.Ledger.read(path)
    assert ledger.step_R.tolist() == [0, 0]
    assert ledger.rewards_R[0] == 1


def test_a_full_disk_takes_no_step_in_part(tmp_path):
    """The system takes what still fits of a write and says so in its return value only."""
    resource = pytest.importorskip("resource", reason="a limit on the size of files, in place of a full disk")
    path = tmp_path / "l"
    log = write(path, [0])
    whole = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, hard))
        with pytest.raises(OSError, match="the ledger holds every step before this one, whole") as caught:
            log.append(1, ["a"] * 9, [1.0] * 9, [5] * 9, [0.5] * 9, [9] * 9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(path)
    assert path.read_bytes() == whole
    write(path, [1])
    assert ba.Ledger.read(path).step_R.tolist() == [0, 0, 1, 1]


def test_lengths_must_agree(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        ba.LedgerWriter(tmp_path / "l").append(0, ["a", "b"], [1.0], [1, 1], [0.5, 0.5], [1, 1])
    assert not (tmp_path / "l").exists()


def test_a_foreign_file_is_named(tmp_path):
    (tmp_path / "x").write_text("step,id\n1,2\n")
    with pytest.raises(ba.InputError, match=r"source=.*x'.*nothing there is a log of a known kind"):
        ba.Ledger.read(tmp_path / "x")
    (tmp_path / "empty").write_text("")
    assert ba.Ledger.read(tmp_path / "empty").ids_R == []


def test_what_a_ledger_leaves_out_is_said_once(tmp_path, caplog):
    write(tmp_path / "l", [0, 1, 2])
    with (tmp_path / "l").open("a") as file:
        file.write("torn {")
    ba.LedgerWriter(tmp_path / "l").resume(1)
    write(tmp_path / "l", [1])
    ledger = ba.Ledger.read(tmp_path / "l")
    assert ledger.broken == 1
    (said,) = caplog.messages
    assert "row voided by a resume: 4" in said
    assert "broken row: 1" in said
    assert "row without a reward: 2" in said
