"""`Ledger.read`: a whole log of any kind in memory, with one warning about what was left out."""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import budgetalloc as ba
from budgetalloc import report
from budgetalloc.logs.ledger import COLUMNS as COLUMNS_OF_A_LEDGER

FILES = Path(__file__).parent / "kinds" / "files"


def test_a_ledger_is_read_from_anything_and_says_what_it_left_out(caplog):
    with caplog.at_level(logging.WARNING, "budgetalloc"):
        ledger = ba.Ledger.read(FILES / "verl")
    assert len(ledger) == 24
    (said,) = caplog.messages
    assert "length unknown: 24" in said
    assert "unknown column 'acc': 24" in said


def test_equal_ids_of_a_ledger_are_one_object(tmp_path):
    log = ba.LedgerWriter(tmp_path / "l")
    for step in range(40):
        log.append(step, [f"p{step % 7}"], [1.0], [9], [0.5], [1])
    ledger = ba.Ledger.read(log.path)
    assert len(set(map(id, ledger.frame.prompt))) == 7


COLUMNS = {"step": [0, 0, 1, 1], "prompt": ["a", "b", "a", "b"], "reward": [1, 0, 1, None]}
COLUMNS |= {"length": [5, 6, -1, 8], "predicted": [0.5] * 4}


def test_a_frame_is_as_good_as_a_file(tmp_path):
    frame = pd.DataFrame(COLUMNS)
    ledger = ba.Ledger.of_frame(frame)
    assert tuple(ledger.frame.columns) == COLUMNS_OF_A_LEDGER
    np.testing.assert_array_equal(ledger.frame.length, [5, 6, np.nan, 8])
    np.testing.assert_array_equal(ledger.frame.success, [1, 0, 1, np.nan])
    other = frame.rename(columns={"step": "update", "prompt": "task", "reward": "points", "length": "tokens"})
    named = {"step": "update", "prompt": "task", "reward": "points", "length": "tokens"}
    pd.testing.assert_frame_equal(ba.Ledger.of_frame(other.assign(note="x"), **named).frame, ledger.frame)
    other.rename(columns={"task": "task_id"}).to_csv(tmp_path / "c.csv", index=False)
    read = ba.Ledger.read(tmp_path / "c.csv", **named | {"prompt": "task_id"})
    pd.testing.assert_frame_equal(read.frame, ledger.frame)
    assert report.report(ledger, policies=()).rollouts == 3  # a rollout without a reward is not counted


def test_steps_out_of_order_are_sorted_and_rewards_mapped():
    frame = pd.DataFrame({"step": [1, 0], "prompt": [2, 3], "reward": [3.0, -1.0]})
    ledger = ba.Ledger.of_frame(frame, reward_range=(-1, 1))
    assert ledger.frame[["step", "prompt", "reward", "success"]].values.tolist() == [[0, 3, -1, 0], [1, 2, 3, 1]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"step": ["x"] * 4}, "step=.*give one number per rollout"),
        ({"step": [0, 0, 0.5, 1]}, "step holds 0.5: give one integer"),
        ({"step": [0, 0, None, 1]}, "step holds nan: give one integer"),
        ({"reward": ["1"] * 4}, "reward=.*give one number per rollout"),
        ({"prompt": [0.5] * 4}, r"prompt\[0\] is 0.5 of type float"),
    ],
)
def test_what_is_no_column_is_refused_when_the_ledger_is_made(columns, message):
    with pytest.raises(ba.InputError, match=message):
        ba.Ledger.of_frame(pd.DataFrame(COLUMNS | columns))


def test_a_frame_without_a_column_is_refused_with_those_that_it_has():
    with pytest.raises(ba.InputError, match=r"reward='points': the frame has no such column, it has \['step'"):
        ba.Ledger.of_frame(pd.DataFrame(COLUMNS), reward="points")
    with pytest.raises(ba.InputError, match="reward_range=5"):
        ba.Ledger.of_frame(pd.DataFrame(COLUMNS), reward_range=5)
    with pytest.raises(ba.InputError, match="frame="):
        ba.Ledger.of_frame([1])
