"""Bad rows are counted, and a bad file is one error. Nothing hangs, fills the memory or reaches the terminal."""

import json
import os

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


def test_a_row_with_a_carriage_return_in_it_is_broken(tmp_path):
    (tmp_path / "c.csv").write_bytes(b"step,prompt_id,reward\n0,a,1\n0,b\rc,1\n0,d,0\n")
    ledger, notes = read(tmp_path / "c.csv")
    assert ledger.frame.prompt.tolist() == ["a", "d"]
    assert notes["broken row"] == 1


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
    if column == "length":  # a list may be the lengths of a group
        assert len(read(tmp_path)[0]) == 4
        return
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
