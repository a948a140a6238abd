"""The rollouts that verl dumps, in files that verl wrote."""

import json
import shutil
from pathlib import Path

import numpy as np

from budgetalloc.beliefs.ids import text_id
from budgetalloc.logs.ledger import read_log

FILES = Path(__file__).parent / "files" / "verl"


def read(path, **asked):
    log = read_log(path, **asked)
    return log, dict(log.notes)


def test_every_file_is_a_step_in_the_order_of_numbers():
    ledger, notes = read(FILES)
    rows = [json.loads(line) for step in (1, 2, 10) for line in (FILES / f"{step}.jsonl").read_text().splitlines()]
    assert ledger.frame.step.tolist() == [row["step"] for row in rows] == [1] * 8 + [2] * 8 + [10] * 8
    assert ledger.frame.prompt.tolist() == [text_id(row["input"]) for row in rows]
    assert ledger.frame.reward.tolist() == [row["score"] for row in rows]
    assert notes == {"unknown column 'acc'": 24, "unknown column 'request_id'": 24, "length unknown": 24}


def test_another_reward_and_another_name_can_be_asked_for():
    ledger, notes = read(FILES, reward="acc", prompt="request_id")
    assert ledger.frame.prompt.tolist()[:2] == ["r1-0", "r1-1"]
    assert set(ledger.frame.reward.tolist()) == {0.0, 1.0}
    assert [note for note in notes if "unknown column" in note] == ["unknown column 'score'"]
    double, _ = read(FILES, reward={"acc": 0.5, "score": 0.5})
    assert double.frame.reward.tolist() == ledger.frame.reward.tolist()


def test_one_file_is_read_alone_and_one_of_several_steps_is_sorted(tmp_path):
    ledger, _ = read(FILES / "10.jsonl")
    assert set(ledger.frame.step.tolist()) == {10}
    (tmp_path / "all.jsonl").write_text("".join((FILES / f"{step}.jsonl").read_text() for step in (10, 1)))
    ledger, notes = read(tmp_path / "all.jsonl")
    assert ledger.frame.step.tolist() == [1] * 8 + [10] * 8
    assert notes["steps out of order, sorted"] == 1


def test_rows_that_are_broken_or_have_no_score_are_counted(tmp_path):
    folder = shutil.copytree(FILES, tmp_path / "dump")
    row = json.loads((folder / "2.jsonl").read_text().splitlines()[0])
    odd = [row | {"score": None}, row | {"score": float("nan")}, row | {"score": "good"}, {"input": None, "score": 1}]
    with (folder / "2.jsonl").open("a") as file:
        file.write("".join(json.dumps(x) + "\n" for x in odd) + '{"input": "torn')
    ledger, notes = read(folder)
    assert len(ledger) == 24 + 2
    assert np.isnan(ledger.frame.reward[16:18]).all()
    assert notes["row without a reward"] == 2
    assert notes["broken row"] == 2
    assert notes["row without a prompt"] == 1
