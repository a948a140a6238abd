"""Ids are read exactly as written, and equally in every format. Texts are hashed once, and columns that nobody needs
are not read."""

import datetime
import json
import uuid

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.beliefs.ids import text_id
from budgetalloc.logs import arrow_files, table
from budgetalloc.logs.ledger import read_log

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
TEXTS = ["007", "1e5", "12_3", "1_23", "NA", "null", "TRUE", "2024-01-01", " x ", "-0", "1.0", "nan"]
NUMBERS = [0, 7, -7, 2**53 + 1, 2**53, 2**63 - 1, 8123456789012345678, 812345678901234567, 81234567890123456]


def written(name, folder, ids):
    """The path of the same rollouts in a format; None where it cannot hold these ids."""
    path, rewards = folder / name, [float(k % 2) for k in range(len(ids))]
    columns = {"step": [0] * len(ids), "prompt_id": ids, "reward": rewards}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    mixed, large = len(set(map(type, ids))) > 1, any(type(x) is int and x >= 2**63 for x in ids)
    kind = pa.string() if isinstance(ids[0], str) else pa.uint64() if large else pa.int64()
    if name == "a.csv":
        path.write_text("step,prompt_id,reward\n" + "".join(f"0,{x},{k % 2}\n" for k, x in enumerate(ids)))
    elif name in ("a.jsonl", "a.json"):
        ends = ("", "\n", "") if name == "a.jsonl" else ("[", ",", "]")
        text = ends[1].join(map(json.dumps, rows))
        path.write_text(f"{ends[0]}{text}{ends[2]}")
    elif name == "a.table.json":  # of W&B and mlflow
        path.write_text(json.dumps({"columns": [*columns], "data": [[*row.values()] for row in rows]}))
    elif name == "ledger.jsonl":  # of a live run
        ba.LedgerWriter(path).append(0, ids, rewards, [1] * len(ids), rewards, [1] * len(ids))
    elif name == "json.arrow":  # the type Json of datasets
        if not hasattr(pa, "json_"):
            return None
        cells = pa.array(map(json.dumps, ids), pa.string()).cast(pa.json_(pa.string()))
        path = saved(path, pa.table(columns | {"prompt_id": cells}))
    elif mixed or (name == "dataset" and large):
        return None
    elif name == "dataset":
        pytest.importorskip("datasets").Dataset.from_dict(columns).save_to_disk(path)
    else:
        path = saved(path, pa.table(columns | {"prompt_id": pa.array(ids, kind)}))
    return path


def saved(path, whole):
    if path.suffix == ".parquet":
        pq.write_table(whole, path)
    else:
        with pa.ipc.new_stream(str(path), whole.schema) as writer:
            writer.write_table(whole)
    return path


FORMATS = [
    "a.csv",
    "a.jsonl",
    "a.json",
    "a.table.json",
    "ledger.jsonl",
    "a.parquet",
    "a.arrow",
    "json.arrow",
    "dataset",
]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_dates_and_uuids_are_the_texts_that_csv_has(tmp_path, suffix):
    day, one = datetime.date(2024, 1, 1), uuid.UUID(int=7)
    ids = {"date32": pa.array([day, None], pa.date32()), "date64": pa.array([day, None], pa.date64())}
    if hasattr(pa, "uuid"):
        ids["uuid"] = pa.array([one.bytes, None], pa.uuid())
    for kind, cells in ids.items():
        whole = pa.table({"step": [0, 0], "prompt_id": cells, "reward": [1.0, 0.0]})
        log = ba.Ledger.read(saved(tmp_path / f"{kind}{suffix}", whole))
        assert log.frame["prompt"].tolist() == [str(one) if kind == "uuid" else "2024-01-01"]
        assert log.notes["row without a prompt"] == 1


HUGE = [0, 1, 2**63 + 1, 2**64 - 1]


@pytest.mark.parametrize(
    "ids", [TEXTS, NUMBERS, HUGE, [*TEXTS, *NUMBERS, *HUGE[2:]]], ids=["texts", "numbers", "huge", "mixed"]
)
@pytest.mark.parametrize("name", FORMATS)
def test_ids_are_those_written_in_each_format(tmp_path, name, ids):
    if (path := written(name, tmp_path, ids)) is None:
        pytest.skip("the format cannot hold them")
    assert read_log(path).frame.prompt.tolist() == ids


def test_ids_of_a_dataset_in_memory_are_those_written():
    datasets = pytest.importorskip("datasets")
    for ids in (TEXTS, NUMBERS):
        columns = {"step": [0] * len(ids), "prompt_id": ids, "reward": [1.0] * len(ids)}
        assert read_log(datasets.Dataset.from_dict(columns)).frame.prompt.tolist() == ids


def rollouts(rows):
    group = np.arange(rows) // 4
    columns = {"step": group // 8, "prompt": [f"What is {k % 20}?" for k in group], "reward": (group % 3 == 0) * 1.0}
    return columns | {"completion": [f"answer {k}" for k in range(rows)], "other": [f"{k}" for k in range(rows)]}


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow"])
def test_each_text_is_hashed_once_and_other_columns_are_only_counted(tmp_path, name, monkeypatch):
    whole = pa.table(rollouts(800))
    if name == "a.csv":
        whole.to_pandas().to_csv(tmp_path / name, index=False)
    elif name == "a.parquet":
        pq.write_table(whole, tmp_path / name, row_group_size=100)
    else:
        with pa.ipc.new_file(str(tmp_path / name), whole.schema) as writer:
            writer.write_table(whole, max_chunksize=100)
    hashed, read = [], []

    def known_id(cell, **options):
        hashed.append(cell)
        return text_id(cell) if cell else None

    monkeypatch.setattr(table, "known_id", known_id)
    add = arrow_files.Held.add
    monkeypatch.setattr(arrow_files.Held, "add", lambda held, *a: (read.append(held.read), add(held, *a)))
    log = read_log(tmp_path / name)
    assert sorted(filter(None, hashed)) == sorted({*rollouts(800)["prompt"]})
    assert read[-1] == {"step", "prompt", "reward"}
    assert log.notes["unknown column 'completion'"] == log.notes["unknown column 'other'"] == 800


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_responses_are_compared_in_the_first_rows(tmp_path, name, monkeypatch):
    monkeypatch.setattr(arrow_files, "_SAMPLE", 200)
    columns = rollouts(800)
    for at, (equal, doubts) in enumerate(((slice(0, 200), 1), (slice(200, 800), 0))):
        texts = [f"{k}" for k in range(800)]
        texts[equal] = ["a"] * len(texts[equal])
        whole = pa.table(columns | {"completion": texts})
        path = tmp_path / f"{at}{name}"
        whole.to_pandas().to_csv(path, index=False) if name == "a.csv" else pq.write_table(whole, path)
        assert len(read_log(path).notes.doubts) == doubts


def test_blocks_of_json_lines_that_differ_are_one_table(tmp_path, monkeypatch):
    """Arrow reads most blocks; one with a mark, a new key, another type or a large integer is read by Python."""
    monkeypatch.setattr("budgetalloc.logs.records.BLOCK", 400)
    rows = [
        {"step": k, "id": f"p{k % 3}", "reward": k % 2, "length": 5, "predicted": 0.5, "count": 1} for k in range(60)
    ]
    rows[20] |= {"success": 0.25}
    rows[21] |= {"success": None}
    rows[40]["id"] = 2**53 + 1
    rows[41]["reward"] = 0.5
    rows.insert(10, {"reward_range": [0, 2]})
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = ba.Ledger.read(path).frame
    assert frame.prompt.tolist() == [2**53 + 1 if k == 40 else f"p{k % 3}" for k in range(60)]
    assert frame.reward.tolist() == [0.5 if k == 41 else float(k % 2) for k in range(60)]
    expected = [(k % 2) / (2 if k >= 10 else 1) for k in range(60)]
    expected[20:22], expected[41] = [0.25, np.nan], 0.25
    np.testing.assert_array_equal(frame.success, expected)
