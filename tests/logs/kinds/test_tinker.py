"""The summaries of rollouts that tinker-cookbook writes."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from budgetalloc.beliefs.ids import text_id
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import read_log

FILES = Path(__file__).parent / "files" / "tinker"
NAME = "train_rollout_summaries.jsonl"
SUM, OTHER = (text_id([{"role": "user", "content": text}]) for text in ("3 + 4 =", "5 + 2 ="))


def read(path, **asked):
    log = read_log(path, **asked)
    assert log.kind == "tinker"
    return log, log.notes


def rows(number=2):
    return [json.loads(line) for line in (FILES / f"iteration_{number:06d}" / NAME).read_text().splitlines()]


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_iterations_are_steps_and_prompts_are_hashes_of_their_messages():
    ledger, notes = read(FILES)
    assert ledger.frame.step.tolist() == [2] * 4 + [10] * 2
    assert ledger.frame.prompt.tolist() == [SUM, SUM, OTHER, OTHER, OTHER, OTHER]
    assert ledger.frame.reward.tolist() == [1, 0, -0.1, 0, 1, 1]
    assert ledger.frame.length.tolist() == [3, 4, 3, 4, 3, 4]
    assert dict(notes) == {"reward outside [0, 1]": 1}
    assert notes.doubts == []


def test_a_metric_is_the_reward_or_the_success():
    ledger, _ = read(FILES, success="correct")
    assert ledger.frame.success.tolist() == [1, 0, 0, 0, 1, 1]
    assert read(FILES, reward={"correct": 1.0, "format": 0.5})[0].frame.reward.tolist() == [1.5, 0.5, 0, 0.5, 1.5, 1.5]


def test_one_file_one_folder_of_an_iteration_and_gzip(tmp_path):
    folder = shutil.copytree(FILES, tmp_path / "run")
    for place in (folder / "iteration_000002" / NAME, folder / "iteration_000002"):
        assert read(place)[0].frame.step.tolist() == [2] * 4
    file = folder / "iteration_000010" / NAME
    file.with_name(NAME + ".gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    assert read(folder)[0].frame.step.tolist() == [2] * 4 + [10] * 2


def test_texts_of_the_prompts():
    assert read_log(FILES).texts == {SUM: "3 + 4 =", OTHER: "5 + 2 ="}


def test_without_messages_a_group_is_a_prompt_of_its_own_and_that_is_said(tmp_path):
    records = [record | {"steps": [record["steps"][0] | {"trace": None}]} for record in rows()]
    ledger, notes = read(write(tmp_path / "iteration_000002" / NAME, records))
    assert ledger.frame.prompt.tolist() == ["2/0", "2/0", "2/1", "2/1"]
    assert len(notes.doubts) == 1
    assert "each group of an iteration is taken as a prompt of its own" in notes.doubts[0]
    for number, record in enumerate(records):
        record["trajectory_metrics"] = {"task": f"t{number // 2}"}
    path = write(tmp_path / "iteration_000002" / NAME, records)
    ledger, notes = read(path, prompt="task")
    assert ledger.frame.prompt.tolist() == ["t0", "t0", "t1", "t1"]
    assert notes.doubts == []


def test_evaluations_broken_rows_and_new_columns_are_counted(tmp_path):
    good = rows()
    odd = [good[0] | {"split": "eval/digits"}, {"split": "train"}, good[0] | {"steps": 5}, good[0] | {"new": 1}]
    odd += [good[0] | {"total_reward": None}, good[0] | {"steps": [{}], "group_idx": 7}]
    write(tmp_path / NAME, good + odd)
    with (tmp_path / NAME).open("a") as file:
        file.write('{"torn')
    ledger, notes = read(tmp_path)
    assert ledger.frame.prompt.tolist() == [SUM, SUM, OTHER, OTHER, SUM, SUM, "2/7"]
    assert np.isnan(ledger.frame.reward[5])
    assert notes["row of an evaluation"] == 1
    assert notes["broken row"] == ledger.notes["broken row"] == 3


def test_a_file_of_another_program_with_this_name_is_no_log_of_tinker(tmp_path):
    write(tmp_path / "iteration_000001" / NAME, [{"uid": "a", "reward": 1.0, "input_prompt": "1|2"}])
    with pytest.raises(InputError, match="does not contain a log of a known kind"):
        read_log(tmp_path)
