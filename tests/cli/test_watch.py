"""`budgetalloc watch` follows a ledger while another process writes it."""

import json
import os
import signal
import subprocess
import sys

import pytest

import budgetalloc as ba
from budgetalloc.cli.__main__ import main
from budgetalloc.cli.commands.watch import follow, line
from budgetalloc.logs.progress import ProgressWriter

COMMAND = [sys.executable, "-u", "-m", "budgetalloc.cli", "watch"]


def append(path, step):
    ba.LedgerWriter(path).append(step, ["a", "a", "b"], [1.0, 0.0, 1.0], [4, 6, 5], [0.5] * 3, [2, 2, 1])


def test_a_pipe_gets_a_line_a_step_and_ctrl_c_ends_with_0(tmp_path):
    """Every read waits for the line that it expects, so the test does not depend on time."""
    path = tmp_path / "ledger.jsonl"
    command = [*COMMAND, str(tmp_path), "--every", "0.01"]  # the folder, in which there is no ledger yet
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        append(path, 0)
        assert run.stdout.readline().startswith("step 0  3 rollouts of 2 prompts  reward 0.667")
        with path.open("a") as file:  # an unfinished line waits, and then counts once
            row = json.dumps({"step": 1, "id": "a", "reward": 0.0, "length": 1, "predicted": 0.5, "count": 1})
            file.write(row[:20])
            file.flush()
            file.write(row[20:] + "\n")
        assert run.stdout.readline().startswith("step 1  1 rollouts of 1 prompts  reward 0.000")
        ba.LedgerWriter(path).resume(1)
        append(path, 1)
        assert run.stdout.readline().startswith("step 1  3 rollouts")
        run.send_signal(signal.SIGINT)
        rest, errors = run.communicate(timeout=120)
    assert (run.returncode, rest, errors) == (0, "", "")


def test_a_terminal_is_drawn_again(tmp_path):
    pty = pytest.importorskip("pty")
    append(tmp_path / "ledger.jsonl", 0)
    watcher, terminal = pty.openpty()
    with subprocess.Popen([*COMMAND, str(tmp_path), "--every", "0.01"], stdout=terminal) as run:
        os.close(terminal)
        shown = b""
        while b"step 0  " not in shown:
            shown += os.read(watcher, 4096)
        append(tmp_path / "ledger.jsonl", 1)
        while b"step 1  " not in shown:
            shown += os.read(watcher, 4096)
        run.send_signal(signal.SIGINT)
        run.wait(timeout=120)
    os.close(watcher)
    assert run.returncode == 0
    assert shown.count(b"\x1b[H\x1b[J") >= 2


def test_once_shows_what_there_is(tmp_path, capsys):
    path = tmp_path / "ledger.jsonl"
    progress = ProgressWriter(path, 0)
    for step in range(3):
        append(path, step)
        progress.step(step, step)
    progress.held_out(3, 3, 0.25)
    assert main(["watch", str(tmp_path), "--once"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("step 2  ")
    for label, share in (("in mixed groups", 66.7), ("single rollouts", 33.3), ("without gradient", 0.0)):
        assert any(row.split(label)[1].split()[0] == str(share) for row in out.splitlines() if label in row), label
    assert "9 rollouts, 2 prompts seen, 45 tokens" in out
    assert "held-out reward      0.250  after 3 steps" in out
    assert "judge by held-out prompts" in out


def test_a_step_that_may_be_unfinished_is_told_when_the_file_rests(tmp_path):
    path = tmp_path / "ledger.jsonl"
    append(path, 0)
    append(path, 1)
    every = follow(path, 0.0, once=False)
    first, second = next(every)[2], next(every)[2]
    assert [step.step for step in first] == [0]
    assert [step.step for step in second] == [1]
    assert line(second[0], 1.5).endswith("15 tokens  1.5 s")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("none/ledger.jsonl", "no such file"),
        (".", "no ledger of budgetalloc"),
        ("two", "holds 2 ledgers: give one of one.jsonl, other.jsonl."),
    ],
)
def test_nothing_to_watch_is_one_line_and_status_1(tmp_path, capsys, name, text):
    (tmp_path / "two").mkdir()
    for ledger in ("one", "other"):
        append(tmp_path / f"two/{ledger}.jsonl", 0)
    assert main(["watch", str(tmp_path / name), "--once"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert text in errors


def test_the_newest_figure_lies_between_the_lowest_and_the_highest(tmp_path, capsys, monkeypatch):
    """Each character of the course is a mean of several steps. Lowest and highest are values of single steps."""
    monkeypatch.setenv("COLUMNS", "80")
    writer = ba.LedgerWriter(tmp_path / "ledger.jsonl")
    for step in range(100):
        writer.append(step, ["a"], [float(step % 2)], [4], [0.3], [1])
    assert main(["watch", str(tmp_path), "--once"]) == 0
    row = next(text for text in capsys.readouterr().out.splitlines() if "brier" in text)
    assert row.split()[1:5] == ["0.490", "0.090", "to", "0.490"]
