"""The protocol of readers: what is found where, whole steps in chunks, notes, memory that does not grow."""

import json
import logging
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.logs.open import KINDS, open_log, read_all
from budgetalloc.logs.rows import Rows, ascending, whole_steps

FILES = Path(__file__).parent / "kinds" / "files"


def rows(steps, names="a", rewards=None, **more):
    ids = [names[at % len(names)] for at in range(len(steps))]
    return Rows(np.array(steps, dtype=np.int64), ids, np.array(rewards or [1.0] * len(steps)), **more)


def write(path, steps, size=4):
    log = ba.LedgerWriter(path)
    for step in steps:
        ids = [f"p{(step + k // 2) % 7}" for k in range(size)]
        log.append(step, ids, [step % 2] * size, [9] * size, [0.5] * size, [2] * size)
    return path


# What is where


def test_each_kind_is_recognised_in_its_file_and_in_its_folder(tmp_path):
    pytest.importorskip("pyarrow")
    write(tmp_path / "own" / "ledger.jsonl", [0])
    places = {
        "trl": FILES / "trl" / "two",
        "verl": FILES / "verl",
        "prime-rl": FILES / "prime_rl",
        "ledger": tmp_path / "own",
    }
    for kind, folder in places.items():
        wanted = {"prime-rl": "rollouts"}.get(kind)
        log = open_log(folder / wanted if wanted else folder)
        assert log.kind == kind
        file = log.files()[0]
        assert open_log(file).kind == kind, file


def test_several_logs_in_a_folder_are_listed(tmp_path):
    write(tmp_path / "one.jsonl", [0])
    (tmp_path / "two.csv").write_text("step,prompt_id,reward\n0,a,1\n")
    with pytest.raises(InputError, match=r"holds 2 logs.*\n.*one.jsonl  \(kind='ledger'\)\n.*two.csv  \(kind='counts'"):
        open_log(tmp_path)
    assert open_log(tmp_path, kind="counts").path == tmp_path / "two.csv"


def test_what_is_no_log_is_refused_with_the_kinds(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing of use")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(InputError, match=r"nothing there is a log of a known kind \(ledger, trl"):
            open_log(place)
    with pytest.raises(InputError, match=r"nothing there is a log of kind 'trl'"):
        open_log(tmp_path, kind="trl")
    with pytest.raises(InputError, match="no such file"):
        open_log(tmp_path / "absent")
    with pytest.raises(InputError, match="source is a dict"):
        open_log({})


@pytest.mark.parametrize(
    "wrong", [{"kind": "trls"}, {"chunk": 0}, {"reward_range": (1, 0)}, {"reward_range": 3}, {"reward_range": ("a", 1)}]
)
def test_arguments_out_of_range_are_named(tmp_path, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        open_log(write(tmp_path / "l", [0]), **wrong)


def test_every_kind_has_its_module():
    from budgetalloc.logs import open as readers

    for kind in KINDS:
        module = readers._module(kind)
        assert callable(module.find), kind
        assert callable(module.rows), kind


# Chunks


@pytest.mark.parametrize("chunk", [1, 3, 5, 8, 100])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_chunks_hold_whole_steps_whatever_the_portions(chunk, size):
    steps = np.repeat([0, 1, 4, 5, 9], [3, 1, 6, 2, 4])
    every = rows(steps, "abc", list(range(16)))
    parts = [every.cut(slice(at, at + size)) for at in range(0, 16, size)]
    chunks = list(whole_steps(iter(parts), chunk, Counter()))
    seen = [set(x.step_R.tolist()) for x in chunks]
    assert sum(map(len, seen)) == len(set.union(*seen))  # no step is in two of them
    assert np.concatenate([x.step_R for x in chunks]).tolist() == steps.tolist()
    assert np.concatenate([x.rewards_R for x in chunks]).tolist() == list(range(16))
    assert all(len(x.ids_R) <= chunk + size + 6 for x in chunks)
    assert len(chunks) >= (5 if chunk == size == 1 else 1)


def test_counts_are_those_of_the_prompt_in_its_step():
    (ledger,) = whole_steps(iter([rows([0, 0, 0, 1, 1], "ab")]), 99, Counter())
    assert ledger.ids_R == ["a", "b", "a", "b", "a"]
    assert ledger.counts_R.tolist() == [2, 1, 2, 1, 1]


def test_a_log_that_knows_lengths_in_part_says_so():
    notes = Counter()
    parts = [rows([0, 0], lengths_R=np.array([5, 6])), rows([0])]
    (ledger,) = whole_steps(iter(parts), 99, notes)
    assert ledger.lengths_R.tolist() == [5, 6, -1]
    assert np.isnan(ledger.predicted_R).all()
    assert notes == {"length unknown": 1}


def test_rewards_are_mapped_and_what_is_outside_is_counted():
    notes = Counter()
    part = rows([0] * 6, rewards=[-1, 1, 0, 1 + 1e-7, np.nan, np.inf])
    (ledger,) = whole_steps(iter([part]), 9, notes, (-1.0, 1.0))
    np.testing.assert_array_equal(ledger.rewards_R, [0, 1, 0.5, 1, np.nan, np.nan])
    assert notes == {"row without a reward": 2, "infinite reward": 1, "length unknown": 6}
    notes.clear()
    (ledger,) = whole_steps(iter([part]), 9, notes)
    assert ledger.rewards_R[0] == -1  # left as it is
    assert notes["reward outside [0, 1]"] == 1
    (ledger,) = whole_steps(iter([part]), 9, notes, (0.0, 1.0))
    assert ledger.rewards_R[0] == -1  # neither clipped nor lost
    assert notes["reward outside reward_range"] == 1


def test_rows_out_of_order_are_a_fault_of_the_reader_and_never_pass():
    with pytest.raises(AssertionError, match="ascending"):
        list(whole_steps(iter([rows([1]), rows([0])]), 1, Counter()))
    with pytest.raises(AssertionError, match="ascending"):
        list(whole_steps(iter([rows([1, 0])]), 1, Counter()))


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_log_out_of_order_is_sorted_and_keeps_the_order_within_a_step(chunk):
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 30, 500)
    every = rows(steps, "abcde", np.arange(500.0).tolist(), lengths_R=np.arange(500), predicted_R=np.arange(500) / 500)
    notes = Counter({"of the pass that only looks": 1})
    parts = list(ascending(lambda: iter([every.cut(slice(at, at + 60)) for at in range(0, 500, 60)]), chunk, notes))
    order = np.argsort(steps, kind="stable")
    assert np.concatenate([x.step_R for x in parts]).tolist() == steps[order].tolist()
    assert np.concatenate([x.rewards_R for x in parts]).tolist() == order.tolist()
    assert np.concatenate([x.lengths_R for x in parts]).tolist() == order.tolist()
    assert [name for x in parts for name in x.ids_R] == ["abcde"[at % 5] for at in order.tolist()]
    assert notes == {"steps out of order, sorted": 1}


def test_a_log_in_order_is_not_sorted():
    notes = Counter()
    parts = [rows([0, 0]), rows([0, 2])]
    assert list(ascending(lambda: iter(parts), 1, notes)) == parts
    assert not notes


# A reading


def test_a_reading_begins_again_and_counts_once(tmp_path):
    path = write(tmp_path / "l", range(6))
    with path.open("a") as file:
        file.write("torn {\n")
    log = open_log(path, chunk=5)
    for _ in range(2):
        chunks = list(log)
        assert [set(x.step_R.tolist()) for x in chunks] == [{0, 1}, {2, 3}, {4, 5}] or len(chunks) > 1
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


@pytest.mark.parametrize("make", [_ledger_of, _shuffled_counts_of])
def test_memory_does_not_grow_with_the_log(tmp_path, make):
    peaks = []
    for steps in (100, 400):
        total, peak = _peak(make(tmp_path / str(steps), steps), 2000)
        assert total == steps * 100
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0], peaks


# Ledger.read


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
