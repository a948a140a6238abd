"""Runs of the table that were repeated with later code: mean success over the run, less that of the table's run.

    python benchmarks/learning/repeated.py
    python benchmarks/learning/run.py --out benchmarks/learning/repeated.jsonl --rate 3e-4 --mix u_shape \
        --policy adaptive --seed 0
"""

from pathlib import Path
from typing import Any

from run import key, mean_success, read


def differences(rows: list[dict[str, Any]], repeated: list[dict[str, Any]]) -> dict[str, float]:
    """By mix and seed, of the runs that both files have."""
    before = {key(row): mean_success(row["curve"]) for row in rows}
    both = [row for row in repeated if key(row) in before]
    return {f"{row['mix']}, seed {row['seed']}": mean_success(row["curve"]) - before[key(row)] for row in both}


def main() -> None:
    here = Path(__file__).parent
    found = differences(read(here / "results.jsonl"), read(here / "repeated.jsonl"))
    for name, difference in found.items():
        print(f"{name}: {difference:+.3f}")
    print(f"{len(found)} runs: {sum(found.values()) / len(found):+.3f}")


if __name__ == "__main__":
    main()
