"""The size of a parquet file in memory is checked before it is unpacked."""

import numpy as np
import pytest

from budgetalloc.errors import InputError
from budgetalloc.logs.reader import open_log, read_all

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
# Never freed, because Arrow's threads return memory to a pool after the read has ended. A freed pool would crash.
POOLS: list[object] = []


def written(path, rows, **more):
    """A dataset with `rows` rollouts of one prompt, and with the columns `more`."""
    table = {"step": np.zeros(rows, dtype=int), "prompt_id": ["a"] * rows, "reward": np.arange(rows) % 2.0}
    pq.write_table(pa.table(table | more), path, store_schema=False)
    return path


@pytest.mark.parametrize("name", ["d.parquet", "completions_00000.parquet"])
def test_a_list_of_a_million_equal_numbers_in_a_small_file_is_refused_by_its_size(tmp_path, name):
    path, values = tmp_path / name, 4_000_000
    flat = pa.array(np.zeros(values))
    rewards = pa.ListArray.from_arrays(pa.array([0, values], pa.int32()), flat)
    key = "reward" if name == "d.parquet" else "prompt"
    columns = {"step": [0], "prompt_id": ["a"], "prompt": ["2 + 2"], "completion": ["4"], "reward": [1.0]}
    pq.write_table(pa.table({**columns, key: rewards}), path)
    assert path.stat().st_size < 20_000
    said = rf"{name}: .*take {8 * values:,}|{name}: .*bytes of memory, in a file of"
    with pytest.raises(InputError, match=said) as raised:
        read_all(open_log(path, max_line=1 << 20))
    assert "at most 16 * max_line = 16,777,216" in str(raised.value)
    assert "--max-line" in str(raised.value)


def test_compressed_texts_are_refused_by_their_size_and_read_with_a_larger_limit(tmp_path):
    texts = [f"{k:06d}" * 200 for k in range(2000)]  # 2.4 MB, compressed to a few kB
    path = written(tmp_path / "d.parquet", 2000, prompt=texts)
    assert len(read_all(open_log(path, max_line=1 << 12)).ids_R) == 2000  # the column of texts is not read
    asked = {"prompt_id": "prompt", "reward": "reward"}
    with pytest.raises(InputError, match=r"d.parquet: row group 0 of 1: the columns .*prompt.* take 2,\d\d\d,\d\d\d"):
        read_all(open_log(path, max_line=1 << 12, **asked))
    assert len(set(read_all(open_log(path, max_line=1 << 18, **asked)).ids_R)) == 2000


def test_row_groups_are_read_one_by_one(tmp_path):
    path, texts = tmp_path / "d.parquet", [f"{k:06d}" * 200 for k in range(2000)]
    table = pa.table({"step": np.zeros(2000, dtype=int), "prompt": texts, "reward": np.ones(2000)})
    pq.write_table(table, path, row_group_size=20)
    assert len(read_all(open_log(path, max_line=1 << 12)).ids_R) == 2000


@pytest.mark.parametrize("name", ["d.parquet", "completions_00000.parquet"])
def test_one_long_text_for_all_rows_takes_memory_once(tmp_path, name):
    """As plain texts, 1,000 rows of 200 kB would take 200 MB."""
    path, rows = tmp_path / name, 1000
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array(["x" * 200_000]))
    columns = {"step": np.zeros(rows, dtype=int), "prompt": text, "completion": ["4"] * rows}
    pq.write_table(pa.table({**columns, "reward": np.arange(rows) % 2.0}), path, store_schema=False)
    assert path.stat().st_size < 100_000
    own, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        whole = read_all(open_log(path))
    finally:
        pa.set_memory_pool(own)
    assert len(whole.ids_R) == rows
    assert pool.max_memory() < 50_000_000
