"""How fast logs are read, and in how much memory: 10 million rollouts of 100,000 prompts, read in chunks.

    python benchmarks/readers.py [--rollouts 10_000_000] [--folder FOLDER]

Each log is written and read in a process of its own. "Peak" is the most memory that reading took, "at start" what the
process has before: Python, NumPy and, for parquet, pyarrow. `shuffled` is a parquet file with its steps in random
order, which is sorted on disk. The files take some GB and are deleted.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import budgetalloc as ba
from budgetalloc.logs.reader import open_log

PROMPTS, STEP, GROUP = 100_000, 8192, 8


def batches(rollouts: int, seed: int = 0) -> Iterator[tuple[int, list[str], np.ndarray, np.ndarray]]:
    """Step, ids, rewards and lengths of one step after another."""
    rng = np.random.default_rng(seed)
    rate_P = rng.beta(0.5, 0.5, PROMPTS)
    for step in range(-(-rollouts // STEP)):
        size = min(STEP, rollouts - step * STEP)
        at_R = np.repeat(rng.integers(0, PROMPTS, -(-size // GROUP)), GROUP)[:size]
        yield (
            step,
            [f"prompt-{at:06d}" for at in at_R.tolist()],
            (rng.random(size) < rate_P[at_R]) * 1.0,
            rng.integers(50, 2000, size),
        )


def write_ledger(path: Path, rollouts: int) -> None:
    log = ba.LedgerWriter(path)
    for step, ids_R, rewards_R, lengths_R in batches(rollouts):
        log.append(step, ids_R, rewards_R, lengths_R, np.full(len(ids_R), 0.5), np.full(len(ids_R), GROUP))


def write_parquet(path: Path, rollouts: int, shuffled: bool = False) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    order = np.random.default_rng(1).permutation(-(-rollouts // STEP))
    for step, ids_R, rewards_R, lengths_R in batches(rollouts):
        step_R = np.full(len(ids_R), order[step] if shuffled else step)
        table = pa.table({"step": step_R, "prompt_id": ids_R, "reward": rewards_R, "length": lengths_R})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def write_csv(path: Path, rollouts: int) -> None:
    """A row a group: an eighth of the rows for as many rollouts."""
    with path.open("w") as file:
        file.write("step,prompt_id,successes,rollouts\n")
        for step, ids_R, rewards_R, _ in batches(rollouts):
            passed = np.add.reduceat(rewards_R, np.arange(0, len(rewards_R), GROUP)).astype(int).tolist()
            file.writelines(f"{step},{x},{s},{GROUP}\n" for x, s in zip(ids_R[::GROUP], passed, strict=True))


LOGS = {
    "ledger": ("ledger.jsonl", write_ledger),
    "parquet": ("log.parquet", write_parquet),
    "shuffled": ("shuffled.parquet", lambda path, rollouts: write_parquet(path, rollouts, shuffled=True)),
    "counts": ("counts.csv", write_csv),
}


def read(path: Path) -> dict[str, float]:
    if path.suffix == ".parquet":
        import pyarrow.parquet  # noqa: F401
    before, start = _peak(), time.perf_counter()
    log = open_log(path)
    rollouts = chunks = largest = 0
    rewards = 0.0
    for chunk in log:
        rollouts, chunks, largest = rollouts + len(chunk.ids_R), chunks + 1, max(largest, len(chunk.ids_R))
        rewards += float(chunk.rewards_R.sum())
    seconds = time.perf_counter() - start
    return {
        "rollouts": rollouts,
        "chunks": chunks,
        "largest": largest,
        "mean": rewards / rollouts,
        "seconds": seconds,
        "before": before,
        "peak": _peak(),
    }


def _peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where the logs are written (default: a temporary folder)")
    parser.add_argument("--logs", nargs="+", choices=[*LOGS], default=[*LOGS])
    parser.add_argument("--do", nargs=2, help=argparse.SUPPRESS)  # what a child process does: write or read, which log
    args = parser.parse_args()
    if args.do:
        what, (name, write) = args.do[0], LOGS[args.do[1]]
        print(json.dumps(read(args.folder / name) if what == "read" else write(args.folder / name, args.rollouts)))
        return
    print(f"{args.rollouts:,} rollouts of {PROMPTS:,} prompts, {STEP:,} a step\n")
    print("| log | size, MB | rollouts a second | seconds | at start, MB | peak, MB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for log in args.logs:
            common = [sys.executable, __file__, "--folder", folder, "--rollouts", str(args.rollouts), "--do"]
            subprocess.run([*common, "write", log], check=True, stdout=subprocess.DEVNULL)
            out = subprocess.run([*common, "read", log], check=True, capture_output=True, text=True).stdout
            got, path = json.loads(out), Path(folder) / LOGS[log][0]
            assert got["rollouts"] == args.rollouts, got
            print(
                f"| {log} | {path.stat().st_size / 1e6:,.0f} | {got['rollouts'] / got['seconds']:,.0f} "
                f"| {got['seconds']:.0f} | {got['before']:.0f} | {got['peak']:.0f} |",
                flush=True,
            )
            path.unlink()


if __name__ == "__main__":
    main()
