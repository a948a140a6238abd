"""`LogStream` can be iterated again, shows its progress, and takes memory that does not grow with the log."""

import tracemalloc

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.logs.reader import open_log, read_all


def write(path, steps, size=4):
    log = ba.LedgerWriter(path)
    for step in steps:
        ids = [f"p{(step + k // 2) % 7}" for k in range(size)]
        log.append(step, ids, [step % 2] * size, [9] * size, [0.5] * size, [2] * size)
    return path


def test_a_reading_begins_again_and_counts_once(tmp_path):
    path = write(tmp_path / "l", range(6))
    with path.open("a") as file:
        file.write("torn {\n")
    log = open_log(path, chunk=5)
    for _ in range(2):
        chunks = list(log)
        assert len(chunks) > 1
        assert sum(x.broken for x in chunks) == 1
        assert log.notes == {"broken row": 1}
        assert log.done == log.total == path.stat().st_size
    assert read_all(log).broken == 1
    assert "'ledger'" in repr(log)


def test_progress_grows_to_the_total(tmp_path):
    log = open_log(write(tmp_path / "l", range(3000)), chunk=100)
    done = [log.done for _ in log]
    assert done == sorted(done)
    assert 0 < done[0] < log.total
    assert done[-1] == log.total


def _peak(path, chunk):
    """The most memory that reading in chunks takes, in bytes."""
    log = open_log(path, chunk=chunk)
    tracemalloc.start()
    try:
        total = sum(len(x.ids_R) for x in log)
        return total, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _ledger_of(path, steps):
    return write(path, range(steps), 100)


def _shuffled_counts_of(path, steps):
    order = np.repeat(np.random.default_rng(0).permutation(steps), 50)
    groups = [f"{step},p{at % 50},1,2\n" for at, step in enumerate(order.tolist())]
    path.write_text("step,prompt_id,successes,rollouts\n" + "".join(groups))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("make", [_ledger_of, _shuffled_counts_of])
def test_memory_does_not_grow_with_the_log(tmp_path, make):
    peaks = []
    for steps in (100, 400):
        total, peak = _peak(make(tmp_path / str(steps), steps), 2000)
        assert total == steps * 100
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0], peaks


def test_a_kind_of_log_without_texts_has_none(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("step,prompt_id,successes,rollouts\n0,a,1,4\n")
    assert open_log(path).texts(["a"]) == {}
