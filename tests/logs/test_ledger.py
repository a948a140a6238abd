"""`Ledger.read`: a whole log of any kind in memory, with one warning about what was left out."""

import logging
from pathlib import Path

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import report

FILES = Path(__file__).parent / "kinds" / "files"


def test_a_ledger_is_read_from_anything_and_says_what_it_left_out(caplog):
    with caplog.at_level(logging.WARNING, "budgetalloc"):
        ledger = ba.Ledger.read(FILES / "verl")
    assert len(ledger.ids_R) == 24
    (said,) = caplog.messages
    assert "length unknown: 24" in said
    assert "unknown column 'acc': 24" in said


def test_equal_ids_of_a_ledger_are_one_object(tmp_path):
    log = ba.LedgerWriter(tmp_path / "l")
    for step in range(40):
        log.append(step, [f"p{step % 7}"], [1.0], [9], [0.5], [1])
    ledger = ba.Ledger.read(log.path)
    assert len(set(map(id, ledger.ids_R))) == 7


def test_a_replay_runs_on_what_was_read():
    world = ba.Replay(ba.Ledger.read(FILES / "verl"), seed=0)
    assert world.rollout(world.ids).shape == (len(world.ids),)


COLUMNS = {"step_R": [0, 0, 1, 1], "ids_R": ["a", "b", "a", "b"], "rewards_R": [1, 0, 1, None]}
COLUMNS |= {"lengths_R": [5, 6, -1, 8], "predicted_R": [0.5] * 4, "counts_R": [1] * 4}


def test_lists_are_as_good_as_arrays():
    lists = ba.Ledger(**COLUMNS)
    arrays = ba.Ledger(**{name: x if name == "ids_R" else np.array(x, float) for name, x in COLUMNS.items()})
    assert lists.step_R.dtype == lists.lengths_R.dtype == lists.counts_R.dtype == np.int64
    for name, column in vars(lists).items():
        if name.endswith("_R"):
            np.testing.assert_array_equal(column, getattr(arrays, name))
    one, other = report.measure(lists), report.measure([arrays])
    assert (one.rollouts, one.shares()) == (other.rollouts, other.shares())
    assert one.rollouts == 3  # a rollout without a reward is not counted


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"step_R": ["x"] * 4}, r"step_R=\['x', 'x', 'x', 'x'\]: give one integer a rollout"),
        ({"step_R": [0, 0, 0.5, 1]}, "step_R holds 0.5: give one integer"),
        ({"lengths_R": [None] * 4}, "lengths_R holds nan: give one integer a rollout, -1 where a length is not known"),
        ({"rewards_R": ["1"] * 4}, "rewards_R=.*give one number per rollout"),
        ({"rewards_R": [[1.0]] * 4}, r"rewards_R has shape \(4, 1\)"),
        ({"rewards_R": 1.0}, r"rewards_R has shape \(\)"),
        ({"counts_R": [1]}, "counts_R has 1 entries, ids_R has 4"),
        ({"ids_R": [0.5] * 4}, r"ids_R\[0\] is 0.5 of type float"),
        ({"ids_R": "abab"}, "ids_R='abab' is one string"),
        ({"success_R": object()}, "success_R=<object"),
        ({"reward_range": 5}, "reward_range=5"),
    ],
)
def test_what_is_no_column_is_refused_when_the_ledger_is_made(columns, message):
    with pytest.raises(ba.InputError, match=message):
        ba.Ledger(**COLUMNS | columns)
