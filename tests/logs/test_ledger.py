"""`Ledger.read`: a whole log in memory, from anything, with one warning for what was left out."""

import json
import logging
from pathlib import Path

import budgetalloc as ba

FILES = Path(__file__).parent / "kinds" / "files"


def write(path, steps, size=4):
    log = ba.LedgerWriter(path)
    for step in steps:
        ids = [f"p{(step + k // 2) % 7}" for k in range(size)]
        log.append(step, ids, [step % 2] * size, [9] * size, [0.5] * size, [2] * size)
    return path


def test_a_ledger_is_read_from_anything_and_says_what_it_left_out(caplog):
    with caplog.at_level(logging.WARNING, "budgetalloc"):
        ledger = ba.Ledger.read(FILES / "verl")
    assert len(ledger.ids_R) == 24
    assert "length unknown: 24" in caplog.text
    assert "unknown column 'acc': 24" in caplog.text


def test_equal_ids_of_a_ledger_are_one_object(tmp_path):
    ledger = ba.Ledger.read(write(tmp_path / "l", range(40)))
    assert len(set(map(id, ledger.ids_R))) == 7


def test_a_replay_runs_on_what_was_read():
    world = ba.Replay(ba.Ledger.read(FILES / "verl"), seed=0)
    assert world.rollout(world.ids).shape == (len(world.ids),)


def test_reading_needs_neither_pandas_nor_pyarrow_where_files_do_not(tmp_path):
    import subprocess
    import sys

    write(tmp_path / "l.jsonl", [0, 1])
    (tmp_path / "c.csv").write_text("step,prompt_id,reward\n0,a,1\n")
    code = (
        "import sys, budgetalloc as ba\n"
        "for name in ('l.jsonl', 'c.csv'): ba.Ledger.read(sys.argv[1] + '/' + name)\n"
        "print([m for m in ('pandas', 'pyarrow', 'torch', 'wandb', 'datasets', 'yaml') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout.replace("'", '"')) == []
