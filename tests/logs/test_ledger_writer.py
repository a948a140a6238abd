"""The ledger's writer only appends. The file is whole after a kill, and has each step once after a resume."""

import json
import math
import os

import numpy as np
import pytest

import budgetalloc as ba


def write(path, steps, reward=1.0):
    log = ba.LedgerWriter(path)
    for step in steps:
        log.append(step, ["a", 7], [reward, math.nan], [5, 6], [0.25, math.nan], [8, 9])
    return log


def test_what_is_written_is_read(tmp_path):
    write(tmp_path / "deep" / "ledger.jsonl", [0, 1])
    ledger = ba.Ledger.read(tmp_path / "deep" / "ledger.jsonl")
    assert ledger.frame.step.tolist() == [0, 0, 1, 1]
    assert ledger.frame.prompt.tolist() == ["a", 7, "a", 7]
    np.testing.assert_array_equal(ledger.frame.reward, [1, math.nan] * 2)
    np.testing.assert_array_equal(ledger.frame.predicted, [0.25, math.nan] * 2)
    assert ledger.frame.length.tolist() == [5, 6, 5, 6]
    assert ledger.notes["broken row"] == 0


def test_every_line_is_json_that_other_tools_read(tmp_path):
    write(tmp_path / "l", [0])
    first, second = [json.loads(line) for line in (tmp_path / "l").read_text().splitlines()]
    assert first == {"step": 0, "id": "a", "reward": 1.0, "length": 5, "predicted": 0.25, "count": 8}
    assert second["reward"] is None


def test_a_full_disk_takes_no_step_in_part(tmp_path):
    """The system writes the part that still fits, and shows that in the return value only."""
    resource = pytest.importorskip("resource", reason="a limit on the size of files, in place of a full disk")
    path = tmp_path / "l"
    log = write(path, [0])
    whole = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, hard))
        with pytest.raises(OSError, match="the ledger holds all earlier steps completely") as caught:
            log.append(1, ["a"] * 9, [1.0] * 9, [5] * 9, [0.5] * 9, [9] * 9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(path)
    assert path.read_bytes() == whole
    write(path, [1])
    assert ba.Ledger.read(path).frame.step.tolist() == [0, 0, 1, 1]


def test_a_foreign_file_is_named(tmp_path):
    (tmp_path / "x").write_text("step,id\n1,2\n")
    with pytest.raises(ba.InputError, match=r"source=.*x'.*does not contain a log of a known kind"):
        ba.Ledger.read(tmp_path / "x")
    (tmp_path / "empty").write_text("")
    assert ba.Ledger.read(tmp_path / "empty").frame.prompt.tolist() == []


def rollouts(path, steps, **more):
    log = ba.LedgerWriter(path)
    for step in steps:
        log.append(step, ["a", "a", "b"], [0.0, 1.0, 2.0], [5] * 3, [0.5] * 3, [2, 2, 1], **more)
    return log


def test_several_decisions_of_one_step_are_several_groups(tmp_path):
    path = tmp_path / "l"
    log = ba.LedgerWriter(path)
    for decision in range(6):  # two decisions in each of the trainer's steps
        log.append(decision // 2, ["a", "a"], [0.0, 1.0], [5, 5], [0.5, 0.5], [2, 2], decision=decision)
    ledger = ba.Ledger.read(path)
    assert ledger.frame.step.tolist() == np.repeat(range(6), 2).tolist()
    assert ledger.frame.trainer_step.tolist() == np.repeat([0, 1, 2], 4).tolist()
    assert '"decision"' not in path.read_text().splitlines()[0]  # where it is the step, it takes no space
    ba.LedgerWriter(path).resume(1)  # voids by the trainer's step
    log.append(1, ["a", "a"], [1.0, 1.0], [5, 5], [0.5, 0.5], [2, 2], decision=2)
    ledger = ba.Ledger.read(path)
    assert ledger.frame.step.tolist() == [0, 0, 1, 1, 2, 2]
    assert ledger.frame.trainer_step.tolist() == [0, 0, 0, 0, 1, 1]
    assert ledger.frame.reward.tolist() == [0, 1, 0, 1, 1, 1]


def test_success_is_the_reward_in_its_range_unless_it_is_stated(tmp_path):
    path = tmp_path / "l"
    rollouts(path, [0], reward_range=(0, 2))
    assert '"success"' not in path.read_text()
    rollouts(path, [1], reward_range=(0, 2), success_R=[0.0, 0.5, 1.0])  # equal to the mapped rewards
    assert path.read_text().count('"success"') == 3
    rollouts(path, [2], reward_range=(0, 2), success_R=[0, 0, 1])
    ledger = ba.Ledger.read(path)
    assert ledger.reward_range == (0.0, 2.0)
    assert ledger.frame.reward.tolist() == [0, 1, 2] * 3  # in their own units
    assert ledger.frame.success.tolist() == [0, 0.5, 1, 0, 0.5, 1, 0, 0, 1]


def test_a_range_that_grows_is_stated_when_it_changes_and_belongs_to_the_rows_after_it(tmp_path, caplog):
    path = tmp_path / "l"
    log = rollouts(path, [0, 1], reward_range=(0, 1))
    rollouts(path, [2], reward_range=(0, 1))  # another process, which states it again
    rollouts(path, [3], reward_range=(0, 4))
    assert sum("reward_range" in line for line in path.read_text().splitlines()) == 3
    ledger = ba.Ledger.read(path)
    assert ledger.reward_range == (0.0, 4.0)
    assert ledger.frame.success.tolist() == [0, 1, 1] * 3 + [0, 0.25, 0.5]
    assert caplog.messages == []  # nothing lies outside
    assert log.path == path


def test_a_range_asked_for_comes_before_the_ledgers(tmp_path):
    rollouts(tmp_path / "l", [0], reward_range=(0, 1))
    ledger = ba.Ledger.read(tmp_path / "l", reward_range=(0, 4))
    assert ledger.frame.reward.tolist() == ledger.frame.success.tolist() == [0, 0.25, 0.5]
    assert ledger.reward_range == (0.0, 1.0)


def test_rewards_outside_the_ledgers_range_are_counted(tmp_path, caplog):
    rollouts(tmp_path / "l", [0], reward_range=(0, 1))
    assert ba.Ledger.read(tmp_path / "l").frame.success.tolist() == [0, 1, 1]
    assert "reward outside the log's range 0 to 1: 1" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"step": 1.5}, "step"),
        ({"decision": "x"}, "decision"),
        ({"reward_range": (1, 0)}, "reward_range"),
        ({"success_R": [1.0]}, "success_R"),
        ({"success_R": ["x"] * 3}, "success_R"),
        ({"ids_R": [None] * 3}, "ids_R"),
        ({"rewards_R": [[1]] * 3}, "rewards_R"),
        ({"lengths_R": [1] * 4}, "lengths_R"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_written(tmp_path, wrong, named):
    given = {"step": 0, "ids_R": ["a"] * 3, "rewards_R": [1] * 3, "lengths_R": [1] * 3, "predicted_R": [1] * 3}
    log = ba.LedgerWriter(tmp_path / "l")
    with pytest.raises(ba.InputError, match=named):
        log.append(**(given | {"counts_R": [1] * 3} | wrong))
    assert not (tmp_path / "l").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_no_ledger(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # opening it for writing would wait for one
    with pytest.raises(ba.InputError, match="it is not a regular file") as raised:
        ba.Session("adaptive", ["reward"], ledger=tmp_path / "pipe")
    os.close(reader)
    assert raised.value.argument == "ledger"
