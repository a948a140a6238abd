"""Commands that take long: a bar with an estimate on a terminal, and what is left after a real Ctrl-C."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from budgetalloc import testing
from budgetalloc.cli.reading import bar
from budgetalloc.logs.ledger import read_log
from budgetalloc.logs.records import BYTES_READ

COMMAND = [sys.executable, "-m", "budgetalloc.cli"]
WAITS = """
import dataclasses, time
from pathlib import Path
import budgetalloc as ba
HERE = Path(__file__).parent

def waits(*, seed=0):
    adaptive = ba.adaptive(seed=seed)  # TRL never asks uniform()

    def decide(view):
        if not (HERE / "go").exists():
            (HERE / "begun").touch()
            time.sleep(3600)
        return adaptive.decide(view)

    return dataclasses.replace(adaptive, name="waits", decide=decide)
"""


@pytest.fixture
def folder(tmp_path):
    """A log, and a policy that touches "begun" and then takes an hour, or acts as adaptive once there is "go"."""
    (tmp_path / "mine.py").write_text(WAITS)
    frame = testing.log_of(testing.three_kinds(12), steps=20, prompts=6, group=4).frame
    frame.to_csv(tmp_path / "log.csv", index=False)
    return tmp_path


def interrupted(folder, *words, group=False):
    """Status, stdout and stderr of a command that gets Ctrl-C once it has begun to wait."""
    (folder / "begun").unlink(missing_ok=True)
    with subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    ) as run:
        while not (folder / "begun").exists():
            assert run.poll() is None, run.communicate()
            time.sleep(0.02)
        if group:
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the workers too
        else:
            run.send_signal(signal.SIGINT)
        out, errors = run.communicate(timeout=300)
    assert "Traceback" not in errors
    return run.returncode, out, errors


@pytest.mark.slow
@pytest.mark.parametrize(("command", "workers"), [("report", 2), ("replay", 1)])
def test_a_replay_that_is_stopped_keeps_the_policies_that_are_complete(folder, command, workers):
    policies = ["--policy", "uniform", "--policy", "knapsack", "--policy", "mine.py:waits"]
    words = [command, "log.csv", *policies, "--seeds", 2, "--workers", workers, "--json"]
    status, out, errors = interrupted(folder, *words, group=workers > 1)
    assert status == 130
    complete = [(row["policy"], row["seeds"]) for row in json.loads(out)["policies"] or ()]
    # with two workers, one may still play the last of knapsack, or have begun late and play uniform
    assert complete in [[("uniform", 2), ("knapsack", 2)], *([[("uniform", 2)], []] if workers > 1 else [])]
    assert f"budgetalloc {command}: stopped by Ctrl-C." in errors
    assert "--seeds" in errors or not complete


@pytest.mark.slow
def test_a_report_without_any_complete_replay_has_all_the_rest(folder):
    status, out, errors = interrupted(folder, "report", "log.csv", "--policy", "mine.py:waits", "--workers", 1)
    assert status == 130
    assert "480 rollouts in 120 groups" in out
    assert "Not replayed: stopped by Ctrl-C." in out
    assert "--no-replay" in errors
    status, out, errors = interrupted(folder, "replay", "log.csv", "--policy", "mine.py:waits", "--workers", 1)
    assert (status, out) == (130, "")
    assert errors == "budgetalloc replay: stopped by Ctrl-C. Nothing was written; the same command starts again.\n"


@pytest.mark.slow
def test_a_demo_that_is_stopped_goes_on_from_there(folder):
    pytest.importorskip("trl")
    (folder / "waits.yaml").write_text("policy: mine.py:waits\n")
    words = ["demo", "--config", "waits.yaml", "--steps", 2, "--seeds", 1, "--workers", 1, "--out", "out"]
    status, _, errors = interrupted(folder, *words)
    assert status == 130
    assert errors.endswith("1 of 2 trainings are kept in out/stopped.json: the same command goes on from there.\n")
    kept = json.loads((folder / "out/stopped.json").read_text())["curves"]
    (folder / "go").touch()
    again = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, cwd=folder, check=True)
    assert "out/stopped.json: 1 trainings are done, 1 are left." in again.stderr
    results = json.loads((folder / "out/results.json").read_text())
    assert [["uniform", 20, [list(point.values()) for point in results["uniform"]["20"]]]] == kept
    assert len(results) == 2
    assert not (folder / "out/stopped.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("deaf", [False, True])
def test_a_check_ends_its_script(folder, deaf):
    pytest.importorskip("trl")
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" if deaf else ""
    wait = "import os, time, pathlib\npathlib.Path('pid').write_text(str(os.getpid()))\npathlib.Path('begun').touch()\n"
    (folder / "train.py").write_text(f"{ignored}{wait}time.sleep(3600)\n")
    status, out, errors = interrupted(folder, "check", "train.py", group=True)
    assert (status, out) == (130, "")
    assert errors == "budgetalloc check: stopped by Ctrl-C. The script did not come to train().\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_shows_an_estimate_on_a_terminal_and_nothing_elsewhere(monkeypatch):
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with bar("replaying", 4, "replays") as move:
            time.sleep(1.1)
            move(2)
            shown = stream.getvalue()
        assert ("replaying:  50%" in shown and "2/4 [00:01<00:0" in shown) == stream.isatty()
        assert bool(shown) == stream.isatty()


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_reading_a_log_counts_its_bytes(folder, ending):
    frame = read_log(folder / "log.csv").frame.drop(columns=["domain", "cost"])
    path = folder / f"again{ending}"
    frame.to_parquet(path) if ending == ".parquet" else frame.to_csv(path, index=False)
    moves = []
    before = BYTES_READ.set(moves.append)
    read_log(path)
    BYTES_READ.reset(before)
    size = path.stat().st_size
    assert size <= sum(moves) <= 3 * size  # its first rows are read up to three times
