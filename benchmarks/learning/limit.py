"""What would exact success rates give, and how much of it does a policy have?

    python benchmarks/learning/limit.py [--policy sampled --policy adaptive_3]

For each mix, on the seeds on which the oracle ran: mean success and pass@64 of uniform groups at their best size and
rate, of the policies, and of the oracle with each of its weights (`oracle.py`) that ran on all these seeds. A policy's
share is its gain over uniform, divided by the gain of the best oracle. Best are chosen on the same few seeds, so they
are a little high.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from oracle import WEIGHTS
from run import mean_success, read

HERE = Path(__file__).parent
SMALLEST = 0.02  # gain of the oracle below which a share would be noise


def by_policy(rows: list[dict[str, Any]], mix: str, seeds: set[int]) -> dict[str, tuple[float, float]]:
    """Mean success and pass@64 of each policy that ran on all these seeds, at its best rate there."""
    runs: dict[tuple[str, float], dict[int, tuple[float, float]]] = {}
    for row in rows:
        if row["mix"] == mix and row["seed"] in seeds:
            result = mean_success(row), row.get("pass64", [np.nan])[-1]
            runs.setdefault((row["policy"], row["rate"]), {})[row["seed"]] = result
    best: dict[str, tuple[float, float]] = {}
    for (policy, _), of_seed in runs.items():
        if of_seed.keys() >= seeds:
            mean, coverage = np.mean(list(of_seed.values()), axis=0).tolist()
            best[policy] = max(best.get(policy, (0.0, 0.0)), (mean, coverage))
    return best


def share(policy: float, uniform: float, oracle: float) -> float | None:
    """The share of the oracle's gain over uniform that a policy has, or None if the oracle gains almost nothing.

    >>> share(0.75, 0.7, 0.8).__round__(2), share(0.75, 0.7, 0.71)
    (0.5, None)
    """
    return (policy - uniform) / (oracle - uniform) if oracle - uniform >= SMALLEST else None


def lines(rows: list[dict[str, Any]], policies: list[str]) -> Iterator[str]:
    """The lines of the table."""
    yield f"| mix | seeds | best uniform | {' | '.join(f'`{x}`' for x in [*policies, *WEIGHTS])} | share |"
    yield "|---|---|---|" + "---|" * (len(policies) + len(WEIGHTS) + 1)
    for mix in dict.fromkeys(row["mix"] for row in rows if row["policy"] in WEIGHTS):
        seeds = {row["seed"] for row in rows if row["mix"] == mix and row["policy"] == "oracle"}
        found = by_policy(rows, mix, seeds)
        groups = [name for name in found if name.startswith("uniform")]
        if not seeds or not groups:
            continue
        uniform = max(groups, key=lambda name: found[name])
        oracle = max(found[name][0] for name in WEIGHTS if name in found)
        shares = [share(found[x][0], found[uniform][0], oracle) for x in policies if x in found]
        cells = [_cell(found.get(name)) for name in (uniform, *policies, *WEIGHTS)]
        told = ", ".join("no gain" if x is None else f"{x:.2f}" for x in dict.fromkeys(shares))
        yield f"| `{mix}` | {', '.join(map(str, sorted(seeds)))} | {' | '.join(cells)} | {told} |"


def _cell(result: tuple[float, float] | None) -> str:
    return "" if result is None else f"{result[0]:.3f} / {result[1]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", help="default: sampled")
    args = parser.parse_args()
    rows = [row for name in ("results", "results_features", "rounds") for row in read(HERE / f"{name}.jsonl")]
    print("\n".join(lines(rows, args.policy or ["sampled"])))


if __name__ == "__main__":
    main()
