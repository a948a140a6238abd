"""Logs of prime-rl: files of steps with flat rows and with traces, and a stream of episodes."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from budgetalloc.logs.ledger import read_log

FILES = Path(__file__).parent / "files" / "prime_rl"


def read(path, **asked):
    log = read_log(path, **asked)
    assert log.kind == "prime-rl"
    return log, dict(log.notes)


def test_files_of_steps_are_read_in_the_order_of_numbers_whatever_the_shape_of_their_rows():
    ledger, notes = read(FILES / "rollouts")
    assert ledger.frame.step.tolist() == [0] * 4 + [2] * 4 + [10] * 2  # the rollouts of the evaluation are not there
    assert ledger.frame.prompt.tolist()[:8] == ["coins/0"] * 4 + ["coins/1"] * 4
    (task,) = set(ledger.frame.prompt.tolist()[8:])
    assert len(task) == 64  # the hash of the task
    assert ledger.frame.reward.tolist() == [0, 0, 0, 0, 0, 0, 1, 1.5, 1, 1]
    assert ledger.frame.length.tolist() == [3] * 7 + [2, 3, 3]
    assert notes == {"reward outside [0, 1]": 1}


def test_of_a_stream_training_counts_at_the_step_in_which_it_arrived():
    ledger, notes = read(FILES / "traces.jsonl.gz")
    assert ledger.frame.step.tolist() == [1] * 3 + [2] * 3 + [3] * 4
    assert np.isnan(ledger.frame.reward[3])  # a call failed
    assert notes["row of an evaluation"] == 2
    assert notes["row without a reward"] == 1


@pytest.mark.parametrize("place", [".", "run_default"])
def test_the_output_folder_of_a_run_is_enough(tmp_path, place):
    shutil.copytree(FILES / "rollouts", tmp_path / place / "rollouts")
    (tmp_path / "rollouts.toml").write_text("")
    ledger, _ = read(tmp_path)
    assert len(ledger) == 10


def episodes():
    return gzip.decompress((FILES / "traces.jsonl.gz").read_bytes()).splitlines(keepends=True)


def test_a_folder_of_steps_with_episodes_is_read_by_the_numbers_of_its_folders(tmp_path):
    """prime-rl writes an episode into the folder of the step in which it arrived."""
    for line in episodes():
        record = json.loads(line)
        step = record["traces"][0]["info"]["arrival"]["step"]
        kind = record["run"]["work"]["type"]
        place = tmp_path / "traces" / f"step_{9 + step}" / kind / "traces.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as file:
            file.write(line)
    whole, _ = read(FILES / "traces.jsonl.gz")
    for path in (tmp_path, tmp_path / "traces"):
        ledger, notes = read(path)
        assert ledger.frame.step.tolist() == [10] * 3 + [11] * 3 + [12] * 4
        assert sorted(ledger.frame.prompt.tolist()) == sorted(whole.frame.prompt.tolist())
        assert "broken row" not in notes
    assert read(tmp_path / "traces" / "step_11" / "train" / "traces.jsonl")[0].frame.step.tolist() == [11] * 3


def compressed(path, parts):
    """A sealed chunk: frames of zstd, and the skippable frame of the seekable format."""
    pa = pytest.importorskip("pyarrow")
    frames = b""
    for part in parts:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as file:
            file.write(part)
        frames += sink.getvalue().to_pybytes()
    path.write_bytes(frames + (0x184D2A5E).to_bytes(4, "little") + (9).to_bytes(4, "little") + b"seektable")


def test_a_stream_in_chunks_is_read_sealed_or_not(tmp_path):
    rows, folder = episodes(), tmp_path / "stream"
    (folder / "annotations").mkdir(parents=True)
    (folder / "annotations" / "00000.jsonl").write_text('{"version": 1, "trace_id": "x", "info": {}, "branches": []}\n')
    compressed(folder / "00000.jsonl.zst", [b"".join(rows[:2]), rows[2]])
    (folder / "00001.jsonl").write_bytes(b"".join(rows[3:6]))
    compressed(folder / "00001.jsonl.zst", [b"half"])  # being sealed: the plain file is still there
    (folder / "00002.jsonl").write_bytes(b"".join(rows[6:]) + rows[0][:50])
    whole, _ = read(FILES / "traces.jsonl.gz")
    for path in (folder, tmp_path):
        ledger, notes = read(path)
        assert ledger.frame.step.tolist() == whole.frame.step.tolist()
        assert ledger.frame.prompt.tolist() == whole.frame.prompt.tolist()
        assert notes["broken row"] == 1
        assert notes["row of an evaluation"] == 2


def test_a_torn_line_costs_one_line(tmp_path):
    folder = shutil.copytree(FILES / "rollouts", tmp_path / "rollouts")
    file = folder / "step_2" / "train_rollouts.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    with (folder / "step_0" / "train_rollouts.jsonl").open("a") as extra:
        extra.write(json.dumps({"example_id": 0, "prompt": "", "reward": "?"}) + "\n")
    ledger, notes = read(folder)
    assert len(ledger) == 9 + 1
    assert notes["broken row"] == 1
    assert notes["row without a reward"] == 1
