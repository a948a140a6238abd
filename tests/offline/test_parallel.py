"""Runs in several processes: the same results in the same order, whatever starts the processes."""

import os
import subprocess
import sys
import time

import pytest

import budgetalloc as ba
from budgetalloc import InputError
from budgetalloc.offline.parallel import cores, in_processes


def named(given, at):
    time.sleep(0.01 * (at % 3))  # so that they end in another order
    return given["name"], at, os.getpid()


def failing(given, at):
    if at == 2:
        raise InputError(f"run {at} failed")
    return at


@pytest.mark.parametrize("workers", [1, 2, 7, None])
def test_results_come_in_order(workers):
    found = list(in_processes(named, {"name": "x", "closure": lambda: 0}, 6, workers))
    assert [(name, at) for name, at, _ in found] == [("x", at) for at in range(6)]
    alone = {pid for _, _, pid in found} == {os.getpid()}
    assert alone == (workers == 1 or cores() == 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_run_is_the_callers(workers):
    runs, seen = in_processes(failing, None, 4, workers), []
    with pytest.raises(InputError, match="run 2 failed"):
        seen.extend(runs)
    assert list(in_processes(failing, None, 2, workers)) == [0, 1]


def test_no_runs_are_no_results():
    assert list(in_processes(named, None, 0)) == []


def test_workers_are_a_number():
    with pytest.raises(InputError, match="workers=0"):
        list(in_processes(named, None, 3, 0))


SPAWNED = """
import multiprocessing, sys, warnings
import budgetalloc as ba
from budgetalloc.offline.compare import comparisons
from budgetalloc.testing import log_of, three_kinds

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    warnings.simplefilter("always")
    policies = {"uniform": ba.uniform, "knapsack": ba.knapsack} if sys.argv[1] == "functions" else {"k": ba.knapsack()}
    log = log_of(three_kinds(12), 12)
    one, two = (list(comparisons(policies, log, 64, seeds=[0, 1], workers=n)) for n in (1, 2))
    print(one == two, len(one))
"""


@pytest.mark.parametrize("given", ["functions", "policies"])
def test_spawned_processes_do_the_same(given, tmp_path):
    """What cannot be pickled, the closure of a policy, runs in this process and says so."""
    script = tmp_path / "script.py"
    script.write_text(SPAWNED)
    run = subprocess.run(
        [sys.executable, str(script), given],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(ba.__file__))},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["True", "48" if given == "functions" else "24"]
    assert ("cannot be sent to other processes" in run.stderr) == (given == "policies")
