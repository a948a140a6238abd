"""Datasets in memory and on disk, parquet and Arrow files, as `datasets` and pyarrow write them."""

import json

import numpy as np
import pytest

from budgetalloc.beliefs.ids import text_id
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import read_log

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
COLUMNS = {"step": [0, 0, 1, 1], "prompt_id": ["a", "b", "a", "b"], "reward": [1.0, 0.0, None, 0.5]}
COLUMNS |= {"length": [5, None, 7, 8], "colour": ["red"] * 4}


def read(source, **asked):
    log = read_log(source, **asked)
    assert log.kind == "table"
    ledger = log
    return ledger, dict(log.notes)


def check(ledger, notes):
    assert ledger.frame.step.tolist() == [0, 0, 1, 1]
    assert ledger.frame.prompt.tolist() == ["a", "b", "a", "b"]
    np.testing.assert_array_equal(ledger.frame.reward, [1, 0, np.nan, 0.5])
    np.testing.assert_array_equal(ledger.frame.length, [5, np.nan, 7, 8])
    assert notes == {"unknown column 'colour'": 4, "row without a reward": 1, "length unknown": 1}


@pytest.mark.slow
def test_a_dataset_reads_alike_in_memory_on_disk_as_parquet_and_as_a_stream(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(COLUMNS)
    check(*read(data))
    data.save_to_disk(tmp_path / "saved")
    check(*read(tmp_path / "saved"))
    data.to_parquet(tmp_path / "d.parquet")
    check(*read(tmp_path / "d.parquet"))
    check(*read(data.to_iterable_dataset()))
    shuffled = data.select([3, 1, 2, 0])  # a view: its rows lie elsewhere than in the table
    ledger, notes = read(shuffled)
    assert ledger.frame.prompt.tolist() == ["b", "a", "b", "a"]
    assert notes["steps out of order, sorted"] == 1
    both = datasets.DatasetDict({"train": data, "test": data})
    with pytest.raises(InputError, match=r"splits \['train', 'test'\]: give one of them, as source\['train'\]"):
        read(both)
    both.save_to_disk(tmp_path / "both")
    with pytest.raises(InputError, match="holds 2 logs"):
        read_log(tmp_path / "both")
    check(*read(tmp_path / "both" / "test"))


def test_arrow_files_of_both_formats_read(tmp_path):
    table = pa.table(COLUMNS)
    for name, new in (("stream", pa.ipc.new_stream), ("file", pa.ipc.new_file)):
        with new(str(tmp_path / f"{name}.arrow"), table.schema) as writer:
            writer.write_table(table)
        check(*read(tmp_path / f"{name}.arrow"))


def test_files_with_other_columns_are_read_with_their_own(tmp_path):
    pq.write_table(pa.table(COLUMNS), tmp_path / "0.parquet")
    pq.write_table(pa.table({"global_step": [2], "prompt_id": ["c"], "score": [1]}), tmp_path / "1.parquet")
    (tmp_path / "2.parquet").write_bytes((tmp_path / "0.parquet").read_bytes()[:100])
    ledger, notes = read(tmp_path)
    assert ledger.frame.step.tolist() == [0, 0, 1, 1, 2]
    assert ledger.frame.reward.iloc[-1] == 1
    assert notes["file that cannot be read to its end"] == 1


def test_groups_lists_of_rewards_and_numbers_of_all_kinds(tmp_path):
    groups = {"step": pa.array([0, 1], pa.int32()), "id": [10**17 + 1, 2], "rewards": [[0.0, 1.0], [None]]}
    pq.write_table(pa.table(groups), tmp_path / "lists.parquet")
    ledger, notes = read(tmp_path / "lists.parquet")
    assert ledger.frame.prompt.tolist() == [10**17 + 1] * 2 + [2]  # exactly: ids are never floats
    np.testing.assert_array_equal(ledger.frame.reward, [0, 1, np.nan])
    counts = {"visit": [1, 0], "id": ["x", "x"], "correct": pa.array([1, 2], pa.uint8()), "n": [2, 2]}
    pq.write_table(pa.table(counts), tmp_path / "counts.parquet")
    ledger, notes = read(tmp_path / "counts.parquet")
    assert ledger.frame.reward.tolist() == [1, 1, 1, 0]
    assert notes["steps out of order, sorted"] == 1
    words = {"step": ["0", "1", "x"], "id": pa.array(["a"] * 3).dictionary_encode(), "passed": [True, None, False]}
    pq.write_table(pa.table(words), tmp_path / "words.parquet")
    ledger, notes = read(tmp_path / "words.parquet")
    np.testing.assert_array_equal(ledger.frame.reward, [1, np.nan])
    assert notes["broken row"] == 1


def test_prompts_without_an_id_are_hashed_and_a_table_of_neither_is_refused(tmp_path):
    pq.write_table(pa.table({"step": [0, 0], "prompt": ["x", None], "score": [1, 0]}), tmp_path / "d.parquet")
    ledger, notes = read(tmp_path / "d.parquet")
    assert ledger.frame.prompt.tolist() == [text_id("x")]
    assert notes["row without a prompt"] == 1
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"has the columns \['a', 'b'\]: name those of the prompts and of the rewards"):
        read(tmp_path / "d.parquet")


@pytest.mark.parametrize("folder", ["d.parquet", "d.arrow"])
def test_json_of_datasets_is_read_as_the_value_that_it_holds(tmp_path, folder):
    """datasets 5 stores a column of texts and numbers, or such a part of one, as JSON."""
    ids = ["a", 8, "007", "true", "null", "[1]"]
    contents = ["x", [{"type": "text", "text": "x"}], "7", None, "null", "[1]"]
    if not hasattr(pa, "json_"):
        pytest.skip("before pyarrow 19")
    mixed = pa.json_(pa.string())
    column = pa.array(map(json.dumps, ids), pa.string()).cast(mixed)
    parts = [[{"role": "user", "content": None if x is None else json.dumps(x)}] for x in contents]
    plain = pa.array(parts, pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})))
    messages = plain.cast(pa.list_(pa.struct({"role": pa.string(), "content": mixed})))
    for name, cells in (("prompt_id", column), ("prompt", messages)):
        table, path = pa.table({"step": [0] * 6, name: cells, "reward": [1.0] * 6}), tmp_path / folder
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(str(path), table.schema) as file:
                file.write_table(table)
        right = ids if name == "prompt_id" else [text_id([{"role": "user", "content": x}]) for x in contents]
        assert read_log(path).frame.prompt.tolist() == right
