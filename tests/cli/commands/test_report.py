"""`budgetalloc report --follow`, while another process writes the log."""

import signal
import subprocess
import sys

import pytest

import budgetalloc as ba

FOLLOW = "import sys; from budgetalloc.cli.commands import report; report.SECONDS = 0.01; "
FOLLOW += "from budgetalloc.cli.__main__ import main; sys.exit(main())"


def append(path, step, rewards, predicted=0.5):
    ids = [f"p{at // 4}" for at in range(len(rewards))]
    ba.LedgerWriter(path).append(step, ids, rewards, [4] * len(ids), [predicted] * len(ids), [4] * len(ids))


@pytest.mark.slow
def test_the_report_is_printed_anew_when_the_log_has_grown(tmp_path):
    """Every read waits for the line that it expects, so the test does not depend on time."""
    path = tmp_path / "ledger.jsonl"
    command = [sys.executable, "-c", FOLLOW, "report", str(path), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr.readline() == f"Waiting for {path}. Ctrl-C ends.\n"
        append(path, 0, [0, 1, 0, 1])
        assert run.stdout.readline() == "Healthy.\n"
        while not run.stdout.readline().startswith("4 rollouts in 1 groups: "):
            pass
        append(path, 1, [0, 0, 0, 0] * 2)
        while not (line := run.stdout.readline()).startswith("Look at "):
            pass
        assert "66.7 % of the rollouts without a gradient" in line
        while not run.stdout.readline().startswith("12 rollouts in 3 groups: "):
            pass
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=120)
    assert (run.returncode, errors) == (0, "")
