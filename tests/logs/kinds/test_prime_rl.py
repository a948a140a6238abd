"""Logs of prime-rl: files of steps with flat rows and with traces, and a stream of episodes."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from budgetalloc.logs.reader import open_log, read_all

FILES = Path(__file__).parent / "files" / "prime_rl"


def read(path, **asked):
    log = open_log(path, **asked)
    assert log.kind == "prime-rl"
    return read_all(log), dict(log.notes)


def test_files_of_steps_are_read_in_the_order_of_numbers_whatever_the_shape_of_their_rows():
    ledger, notes = read(FILES / "rollouts")
    assert ledger.step_R.tolist() == [0] * 4 + [2] * 4 + [10] * 2  # the rollouts of the evaluation are not there
    assert ledger.ids_R[:8] == ["coins/0"] * 4 + ["coins/1"] * 4
    (task,) = set(ledger.ids_R[8:])
    assert len(task) == 64  # the hash of the task
    assert ledger.rewards_R.tolist() == [0, 0, 0, 0, 0, 0, 1, 1.5, 1, 1]
    assert ledger.lengths_R.tolist() == [3] * 7 + [2, 3, 3]
    assert notes == {"reward outside [0, 1]": 1}


def test_of_a_stream_training_counts_at_the_step_in_which_it_arrived():
    ledger, notes = read(FILES / "traces.jsonl.gz")
    assert ledger.step_R.tolist() == [1] * 3 + [2] * 3 + [3] * 4
    assert np.isnan(ledger.rewards_R[3])  # a call failed
    assert notes["row of an evaluation"] == 2
    assert notes["row without a reward"] == 1


@pytest.mark.parametrize("place", [".", "run_default"])
def test_the_output_folder_of_a_run_is_enough(tmp_path, place):
    shutil.copytree(FILES / "rollouts", tmp_path / place / "rollouts")
    (tmp_path / "rollouts.toml").write_text("")
    ledger, _ = read(tmp_path)
    assert len(ledger.ids_R) == 10


def test_one_file_of_a_step_and_a_stream_in_a_folder_are_found(tmp_path):
    ledger, _ = read(FILES / "rollouts" / "step_2" / "train_rollouts.jsonl")
    assert ledger.step_R.tolist() == [2] * 4
    (tmp_path / "monitor").mkdir()
    (tmp_path / "monitor" / "traces.jsonl").write_bytes(gzip.decompress((FILES / "traces.jsonl.gz").read_bytes()))
    assert len(read(tmp_path)[0].ids_R) == 10


def test_a_stream_out_of_order_is_sorted(tmp_path):
    rows = gzip.decompress((FILES / "traces.jsonl.gz").read_bytes()).splitlines(keepends=True)
    (tmp_path / "traces.jsonl").write_bytes(b"".join(reversed(rows)))
    ledger, notes = read(tmp_path / "traces.jsonl", chunk=2)
    assert ledger.step_R.tolist() == [1] * 3 + [2] * 3 + [3] * 4
    assert notes["steps out of order, sorted"] == 1
    assert notes["row of an evaluation"] == 2  # counted once, although the file is read twice


def test_a_torn_line_costs_one_line(tmp_path):
    folder = shutil.copytree(FILES / "rollouts", tmp_path / "rollouts")
    file = folder / "step_2" / "train_rollouts.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    with (folder / "step_0" / "train_rollouts.jsonl").open("a") as extra:
        extra.write(json.dumps({"example_id": 0, "prompt": "", "reward": "?"}) + "\n")
    ledger, notes = read(folder)
    assert len(ledger.ids_R) == 9 + 1
    assert notes["broken row"] == 1
    assert notes["row without a reward"] == 1
