"""Bad rows are counted, and a bad file is one error. Nothing hangs, fills the memory or reaches the terminal."""

import gzip
import json
import os
import subprocess
import sys

import pytest

import budgetalloc as ba
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import read_log

ROW = {"step": 0, "id": "a", "reward": 1, "length": 2, "predicted": 0.5, "count": 1}


def line(**changes):
    return json.dumps(ROW | changes)


def read(path, **asked):
    log = read_log(path, **asked)
    return log, log.notes


# Rows


@pytest.mark.parametrize(
    "bad",
    [
        '{"step":0,"id":"a","reward":1,"length":Infinity,"predicted":0.5,"count":1}',
        '{"step":0,"id":"a","reward":1,"length":1e19,"predicted":0.5,"count":1}',
        line(reward=10**400),
        line(reward={}),
        line(id=float("inf")),
        line(step=2**63),
        line(step=float("nan")),
        line(step=0.5),
        line(step=True),
        '{"resumed": 1e400}',
        '{"resumed": [1]}',
        '{"reward_range": [1, 0]}',
        '{"reward_range": "ab"}',
        '{"step": ' + "[" * 100_000,
        line(step="STEP").replace('"STEP"', "9" * 5000),
        line(success="x"),
        line(decision=1e300),
        "\udcff",
    ],
)
def test_a_ledger_counts_a_row_that_cannot_be_read(tmp_path, bad):
    text = "\n".join([line(), bad, line(step=1)]) + "\n"
    (tmp_path / "l.jsonl").write_text(text, errors="surrogateescape")
    ledger, notes = read(tmp_path)
    assert ledger.frame.step.tolist() == [0, 1]
    assert notes["broken row"] + notes["row without a prompt"] == 1


@pytest.mark.parametrize(
    "record", ['{"traces": 5}', '{"task": 1, "traces": 5}', '{"traces": [5]}', "[5]", '{"a": 1e400}']
)
def test_a_foreign_file_beside_a_log_does_not_matter(tmp_path, record):
    (tmp_path / "other.jsonl").write_text(record + "\n")
    (tmp_path / "traces.jsonl").write_text(record + "\n")
    (tmp_path / "c.csv").write_text("step,prompt_id,reward\n0,a,1\n")
    ledger, _ = read(tmp_path)
    assert ledger.frame.prompt.tolist() == ["a"]


def test_what_a_killed_gzip_leaves_is_read_as_far_as_it_goes(tmp_path):
    whole = gzip.compress(b"step,prompt_id,reward\n0,a,1\n", mtime=0)
    for size in range(1, len(whole)):
        (tmp_path / "c.csv.gz").write_bytes(whole[:size])
        try:
            ledger, notes = read(tmp_path / "c.csv.gz")
        except InputError:
            continue
        assert len(ledger) <= 1
        assert notes["file that ends early"] == 1


@pytest.mark.parametrize("cell", ["[" * 100_000, "1e400x", "9" * 5000, '"{""a"": 1}"', "[[1]]"])
def test_a_cell_of_rewards_that_cannot_be_read_costs_its_row(tmp_path, cell):
    (tmp_path / "c.csv").write_text(f"step,id,rewards\n0,a,1;0\n0,b,{cell}\n1,a,01\n")
    ledger, notes = read(tmp_path / "c.csv")
    assert set(ledger.frame.prompt.tolist()) == {"a"} or cell == "9" * 5000
    assert notes["broken row"] == (cell != "9" * 5000)  # a number above all, and so an infinite reward
    assert notes["infinite reward"] == (cell == "9" * 5000)


@pytest.mark.parametrize("column", ["step", "length", "predicted", "successes"])
def test_lists_where_numbers_should_be_are_broken_rows(tmp_path, column):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"step": [0, 1], "prompt_id": ["a", "b"], "successes": [1, 1], "rollouts": [2, 2], "length": [1, 1]}
    table |= {"predicted": [0.5, 0.5]}
    pq.write_table(pa.table(table | {column: [[1, 1], [1, 0]]}), tmp_path / "d.parquet")
    if column == "successes":  # a list may be several rewards
        assert (len(read(tmp_path)[0]), read(tmp_path)[1]["broken row"]) == (0, 2)
        return
    with pytest.raises(InputError, match=rf"{column}='{column}': the column holds no numbers, but \[1, 1\]"):
        read(tmp_path)


def test_a_column_twice_is_an_error_that_names_it(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = [pa.array([0, 1]), pa.array(["a", "b"]), pa.array([1.0, 0.0]), pa.array([1.0, 0.0])]
    pq.write_table(pa.Table.from_arrays(columns, ["step", "prompt_id", "reward", "reward"]), tmp_path / "d.parquet")
    (tmp_path / "d.csv").write_text("step,prompt_id,reward,reward\n0,a,1,0\n")
    for name in ("d.parquet", "d.csv"):
        with pytest.raises(InputError, match=r"the column 'reward' twice"):
            read(tmp_path / name)


# Files


DAMAGED = """
import sys, random
from pathlib import Path
import budgetalloc as ba
from budgetalloc.logs.ledger import read_log
import logging; logging.disable()
whole, random_ = Path(sys.argv[1]).read_bytes(), random.Random(0)
path, outcomes = Path(sys.argv[1] + "-damaged.arrow"), {}
for _ in range(int(sys.argv[2])):
    damaged = bytearray(whole)
    for _ in range(random_.randint(1, 3)):
        damaged[random_.randrange(len(damaged))] = random_.randrange(256)
    path.write_bytes(damaged)
    try:
        sum(map(len, map(str, read_log(path).frame.prompt)))
        outcome = "read"
    except ba.BudgetallocError:
        outcome = "refused"
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
print(outcomes)
"""


@pytest.mark.parametrize("form", ["stream", "file"])
@pytest.mark.slow
def test_a_damaged_arrow_file_never_ends_the_process(tmp_path, form):
    pa = pytest.importorskip("pyarrow")
    columns = {"step": [0, 0, 1, 1] * 20, "prompt_id": ["a", "bb", None, "cccc"] * 20}
    columns |= {"reward": [1.0, 0.0, None, 0.5] * 20, "rewards": [[1.0, 0.0], [], None, [0.5]] * 20}
    table = pa.table(columns).append_column("word", pa.array(["x", "y", None, "x"] * 20).dictionary_encode())
    with (pa.ipc.new_stream if form == "stream" else pa.ipc.new_file)(str(tmp_path / "d"), table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    run = subprocess.run(
        [sys.executable, "-c", DAMAGED, str(tmp_path / "d"), "400"], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "read" in run.stdout


def test_a_file_without_permission_is_one_error(tmp_path, monkeypatch):
    (tmp_path / "l.jsonl").write_text(line() + "\n")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(tmp_path / "l.jsonl"))

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(InputError, match=r"l.jsonl: Permission denied. The log cannot be read"):
        read_log(tmp_path / "l.jsonl")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_never_opened(tmp_path):
    (tmp_path / "l.jsonl").write_text(line() + "\n")
    names = ["x.csv", "y.jsonl", "traces.jsonl", "1.jsonl", "d.parquet", "d.arrow", "completions_00001.parquet"]
    for name in (*names, "run-x.wandb"):
        os.mkfifo(tmp_path / name)
    assert read_log(tmp_path).path == tmp_path / "l.jsonl"
    with pytest.raises(InputError, match="is a pipe, a socket or a device"):
        read_log(tmp_path / "x.csv")
    with pytest.raises(InputError, match="is not a regular file"):
        ba.LedgerWriter(tmp_path / "y.jsonl")


def test_notes_name_few_of_many_unknown_columns(tmp_path):
    (tmp_path / "l.jsonl").write_text("".join(line(**{f"key{k}": 1}) + "\n" for k in range(500)))
    _, notes = read(tmp_path)
    assert len(notes) < 30
    assert notes["unknown columns beyond these"] == 480


# The terminal


def test_no_escape_code_comes_out_of_a_name(tmp_path):
    code = "\x1b[2J\x07"
    (tmp_path / f"a{code}.csv").write_text(f"step,id,reward,x{code}\n0,a,1,\n")
    (tmp_path / f"b{code}.csv").write_text(f"step,id,reward,x{code}\n0,a,1,\n")
    with pytest.raises(InputError) as caught:
        read_log(tmp_path)
    assert r"\x1b[2J\x07" in str(caught.value)
    _, notes = read(tmp_path / f"a{code}.csv")
    with pytest.raises(InputError) as other:
        list(read_log(tmp_path / f"a{code}.csv", prompt=f"y{code}"))
    log = repr(read_log(tmp_path / f"a{code}.csv"))
    for text in (str(caught.value).replace("\n", ""), str(other.value), log, *notes):
        assert text.isprintable()
