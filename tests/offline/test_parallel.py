"""Runs in several processes: the same results in the same order, closures included, whatever ends them."""

import os
import signal
import subprocess
import sys
import time

import joblib
import pytest

import budgetalloc as ba
from budgetalloc import InputError, UnsupportedError
from budgetalloc.offline.parallel import in_parallel

HERE = os.path.dirname(os.path.dirname(ba.__file__))
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])}


def named_after(name):
    """A run that is a closure, which pickle alone cannot send; the runs end in another order than they begin."""

    def run(given, at):
        time.sleep(0.01 * (at % 3))
        return name, given(at), os.getpid()

    return run


def failing_at(bad):
    def run(given, at):
        if at == bad:
            raise InputError(f"run {at} failed")
        return at

    return run


@pytest.mark.parametrize("workers", [1, 2, pytest.param(7, marks=pytest.mark.slow), None])
def test_results_of_closures_come_in_order(workers):
    rows = list(in_parallel(named_after("x"), lambda at: 10 * at, 6, workers))
    assert [(name, value) for name, value, _ in rows] == [("x", 10 * at) for at in range(6)]
    alone = {pid for _, _, pid in rows} == {os.getpid()}
    assert alone == (workers == 1 or joblib.cpu_count() == 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_run_is_raised_here(workers):
    runs, seen = in_parallel(failing_at(2), None, 4, workers), []
    with pytest.raises(InputError, match="run 2 failed"):
        seen.extend(runs)
    assert seen == list(range(len(seen)))
    assert list(in_parallel(failing_at(2), None, 2, workers)) == [0, 1]


@pytest.mark.parametrize("workers", [0, True, "Ray"])
def test_workers_are_a_positive_integer_or_ray(workers):
    with pytest.raises(InputError, match=f"workers={workers!r}: use an integer of at least 1, or 'ray'"):
        list(in_parallel(pow, 2, 3, workers))


def test_a_missing_ray_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"workers='ray' needs ray .*pip install 'budgetalloc\[ray\]'"):
        list(in_parallel(pow, 2, 3, "ray"))


def test_results_come_as_the_runs_end(tmp_path):
    def run(folder, at):
        while at == 0 and not (folder / "seen").exists():  # run 0 cannot end before its caller has seen another's end
            time.sleep(0.01)
        return at

    ended = []
    for at in in_parallel(run, tmp_path, 4, 2, ordered=False):
        ended.append(at)
        (tmp_path / "seen").touch()
    assert sorted(ended) == [0, 1, 2, 3]
    assert ended[0] != 0


STOPPED = """
import sys, time, warnings
from pathlib import Path
from budgetalloc.offline.parallel import in_parallel

def run(folder, at):
    if at < 2:
        return at
    (folder / str(at)).touch()
    time.sleep(3600)

def main():
    folder, seen = Path(sys.argv[2]), []
    for result in in_parallel(run, folder, 6, 2):
        seen.append(result)
        if len(seen) == 2:
            while len(list(folder.iterdir())) < 2:  # until both workers are in a run that takes an hour
                time.sleep(0.01)
            print(*seen, flush=True)
            if sys.argv[1] == "early":
                break

warnings.simplefilter("always")
try:
    main()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("how", ["early", "ctrl-c"])
def test_runs_that_are_stopped_end_at_once_without_a_traceback(how, tmp_path):
    """The script has no `if __name__ == "__main__"`, and its run is a function of the script itself."""
    (tmp_path / "begun").mkdir()
    script = tmp_path / "script.py"
    script.write_text(STOPPED)
    process = subprocess.Popen(
        [sys.executable, str(script), how, str(tmp_path / "begun")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # so that readline leaves the next lines to communicate
        start_new_session=True,
        env=ENVIRONMENT,
    )
    assert process.stdout.readline() == b"0 1\n"
    if how == "ctrl-c":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    # Returns when no process has the pipes open, so no worker is left.
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, b"" if how == "early" else b"interrupted\n")
    # Loky, which joblib uses, does not join a daemon thread that removes a semaphore, and may warn of that semaphore.
    assert not err or b"resource_tracker" in err, err
    assert b"Traceback" not in err
