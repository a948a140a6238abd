"""Reading logs: `Ledger.read` next to DuckDB and polars, which group the same rollouts by step and prompt.

    pip install duckdb polars
    python benchmarks/reading.py [--rollouts 100000 1000000] [--repeats 3] [--logs trl parquet csv ledger]

Logs are made up: groups of 8 in steps of 512, prompts of 300 to 2,000 characters, completions of 200 to 1,200. Each
read is a process of its own with one thread, and readers take turns. A row has medians of processor time without
imports, and the peak memory of the process with them; *ratio* is to the faster of DuckDB and polars. *frame* is the
memory of the ledger's frame, each distinct id once.
"""

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

STEP, GROUP = 512, 8
KINDS = {"trl": ("completions/*.parquet", "prompt", "accuracy_reward"), "parquet": ("log.parquet", "prompt", "reward")}
KINDS |= {"csv": ("log.csv", "prompt", "reward"), "ledger": ("ledger.jsonl", "id", "reward")}


def texts(rng: np.random.Generator, count: int, low: int, high: int) -> list[str]:
    """Texts of words, all different."""
    words = "".join(rng.choice([*"abcdefghij klmnop qrstuvw xyz "], 200_000))
    starts, sizes = rng.integers(0, len(words) - high, count), rng.integers(low, high, count)
    return [f"{at} " + words[a : a + n] for at, (a, n) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True))]


def write(folder: Path, rollouts: int, kinds: Collection[str] = tuple(KINDS)) -> None:
    """One log of each of these kinds, with the same rollouts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(rollouts)
    prompts, answers = texts(rng, max(rollouts // 64, 500), 300, 2000), texts(rng, 5000, 200, 1200)
    (folder / "completions").mkdir()
    tables = []
    with (folder / "log.csv").open("w", newline="") as table, (folder / "ledger.jsonl").open("w") as ledger:
        rows = csv.writer(table)
        rows.writerow(["step", "prompt", "completion", "reward", "length"])
        ledger.write('{"reward_range": [0.0, 1.0]}\n')
        for step in range(rollouts // STEP):
            at = np.repeat(rng.choice(len(prompts), STEP // GROUP, replace=False), GROUP).tolist()
            prompt = [prompts[k] for k in at]
            completion = [f"{step} {k} " + answers[x] for k, x in enumerate(rng.integers(0, 5000, STEP).tolist())]
            reward, length = (rng.random(STEP) < 0.4).astype(float), rng.integers(20, 800, STEP)
            group = reward.reshape(-1, GROUP)
            advantage = ((group - group.mean(1, keepdims=True)) / (group.std(1, keepdims=True) + 1e-4)).ravel()
            columns = {"step": [step] * STEP, "prompt": prompt, "completion": completion}
            if "parquet" in kinds:
                tables.append(pa.table(columns | {"reward": reward, "length": length}))
            if "trl" in kinds:
                logged = pa.table(columns | {"accuracy_reward": reward, "advantage": advantage})
                pq.write_table(logged, folder / "completions" / f"completions_{step:05d}.parquet")
            if "csv" in kinds:
                rows.writerows(zip(*columns.values(), reward.tolist(), length.tolist(), strict=True))
            for k, r, n in zip(at, reward.tolist(), length.tolist(), strict=True) if "ledger" in kinds else ():
                row = {"step": step, "id": f"prompt-{k}", "reward": r, "length": n, "predicted": 0.5, "count": GROUP}
                ledger.write(json.dumps(row) + "\n")
            if len(tables) == 100:
                rows_at_once(folder, tables)
        rows_at_once(folder, tables, last=True)


_writers: dict[Path, Any] = {}


def rows_at_once(folder: Path, tables: list[Any], last: bool = False) -> None:
    """Writes these tables as one row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if tables:
        writer = _writers.setdefault(folder, None) or pq.ParquetWriter(folder / "log.parquet", tables[0].schema)
        _writers[folder] = writer
        writer.write_table(pa.concat_tables(tables).combine_chunks())
        tables.clear()
    if last and folder in _writers:
        _writers.pop(folder).close()


def reader(name: str, kind: str, folder: Path) -> Callable[[], Any]:
    """A function that reads a log; imports are done."""
    files, prompt, reward = KINDS[kind]
    path = str(folder / files)
    if name == "duckdb":
        import duckdb

        source = f"read_{'json' if kind == 'ledger' else 'csv' if kind == 'csv' else 'parquet'}('{path}')"
        query = f"SELECT step, {prompt}, sum({reward}), count(*) FROM {source} GROUP BY ALL"
        connection = duckdb.connect(config={"threads": 1})
        return lambda: connection.execute(query).fetchnumpy()
    if name == "polars":
        import polars as pl

        scan = {"ledger": pl.scan_ndjson, "csv": pl.scan_csv}.get(kind, pl.scan_parquet)
        return lambda: scan(path).group_by("step", prompt).agg(pl.col(reward).sum(), pl.len()).collect()
    import pandas  # noqa: F401
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401

    import budgetalloc as ba
    import budgetalloc.logs.reader

    return lambda: ba.Ledger.read(folder / "completions" if kind == "trl" else path)


def read_once(name: str, kind: str, folder: Path) -> None:
    """Prints seconds of processor time, MB of peak memory, and MB of the frame."""
    call = reader(name, kind, folder)
    start = time.process_time()
    made = call()
    seconds = time.process_time() - start
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    frame = 0.0
    if name == "budgetalloc":
        ids = sum(map(sys.getsizeof, made.frame["prompt"].unique()))
        frame = (int(made.frame.memory_usage(index=False).sum()) + ids) / 2**20
    print(seconds, peak, frame)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--logs", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        read_once(options.one[0], options.one[1], Path(options.one[2]))
        return
    names = ("duckdb", "polars", "budgetalloc")
    print(f"{'':>19}{'seconds':^31}{'':>8}{'peak memory, MB':^30}\n{'rollouts':>10}{'log':>9}", end="")
    print("".join(f"{x:>10}" for x in ("duckdb", "polars", "ledger")) + f"{'ratio':>7}", end="")
    print("".join(f"{x:>9}" for x in ("duckdb", "polars", "ledger", "frame")))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    for rollouts in options.rollouts:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), rollouts, options.logs)
            for kind in options.logs:
                found: dict[str, list[list[float]]] = {name: [] for name in names}
                for _ in range(options.repeats):
                    for name in names:
                        command = [sys.executable, __file__, "--one", name, kind, folder]
                        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                        found[name].append([float(x) for x in said.stdout.split()])
                seconds, peaks = ([statistics.median(x[k] for x in found[n]) for n in names] for k in (0, 1))
                frame = found["budgetalloc"][0][2]
                print(f"{rollouts:>10,}{kind:>9}" + "".join(f"{x:>10.2f}" for x in seconds), end="")
                print(
                    f"{seconds[2] / min(seconds[:2]):>7.1f}" + "".join(f"{x:>9.0f}" for x in (*peaks, frame)),
                    flush=True,
                )


if __name__ == "__main__":
    main()
