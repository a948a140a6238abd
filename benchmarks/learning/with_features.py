"""What a variant changes, compared with `adaptive` and uniform groups and paired by seed: features of texts, or others.

    python benchmarks/learning/with_features.py
    python benchmarks/learning/with_features.py --policy adaptive_3 --runs benchmarks/learning/rounds.jsonl
    python benchmarks/learning/with_features.py --policy adaptive_singles --runs benchmarks/learning/singles.jsonl

The runs of `adaptive_text` are in `results_features.jsonl`, those of `adaptive(rounds=3)` in `rounds.jsonl`, and those
of `adaptive_singles` in `singles.jsonl`, at the learning rate of `adaptive`; their own rates were not tuned. The others
are the table's. Cells are mean success and pass@64.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from run import mean_success, read
from table import averaged, best_uniform, current, of_table, with_interval

HERE = Path(__file__).parent
Runs = dict[int, dict[str, Any]]  # by seed


def results(runs: Runs, seeds: list[int]) -> NDArray[np.float64]:
    """Mean success and pass@64 of these seeds, shape (2, S)."""
    curves = [runs[seed]["curve"] for seed in seeds]
    return np.array([[mean_success(curve) for curve in curves], [curve[-1]["pass64"] for curve in curves]])


def compared(
    rows: list[dict[str, Any]], variant: list[dict[str, Any]], name: str
) -> Iterator[tuple[str, int, list[NDArray[np.float64]]]]:
    """Each mix, its number of seeds, and the `results` of uniform, of the default and of the variant on them."""
    for mix in dict.fromkeys(row["mix"] for row in variant):
        of_mix = of_table(rows, mix)
        uniform = best_uniform(rows, mix, {row["policy"] for row in of_mix if row["policy"].startswith("uniform")})
        by_name: list[Runs] = [
            {row["seed"]: row for row in of_mix if row["policy"] == known} for known in (uniform, "adaptive")
        ]
        by_name.append({row["seed"]: row for row in variant if row["mix"] == mix and row["policy"] == name})
        seeds = sorted(set.intersection(*map(set, by_name)))
        if len(seeds) > 1:
            yield mix, len(seeds), [results(runs, seeds) for runs in by_name]


def lines(rows: list[dict[str, Any]], variant: list[dict[str, Any]], name: str = "adaptive_text") -> Iterator[str]:
    """The lines of the table, from the table's rows and those of the variant."""
    names = f"best uniform | `adaptive` | `{name}`"
    yield f"| mix | seeds | {names} | mean less `adaptive`'s | pass@64 less | mean less uniform's | pass@64 less |"
    yield "|---" * 9 + "|"
    for mix, seeds, (plain, default, own) in compared(rows, variant, name):
        cells = [f"{mean.mean():.3f} / {coverage.mean():.3f}" for mean, coverage in (plain, default, own)]
        cells += [with_interval(gain) for base in (default, plain) for gain in own - base]
        yield f"| `{mix}` | {seeds} | {' | '.join(cells)} |"


def over_mixes(rows: list[dict[str, Any]], variant: list[dict[str, Any]], name: str = "adaptive_text") -> str:
    """The differences to the default, averaged over the mixes."""
    gains = [own - default for _, _, (_, default, own) in compared(rows, variant, name)]
    if not gains:
        return "- **Over the mixes, less `adaptive`'s**: no mix with two seeds."
    mean, coverage = (averaged([gain[at] for gain in gains]) for at in range(2))
    return f"- **Over the mixes, less `adaptive`'s**: mean {mean}, pass@64 {coverage}."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="adaptive_text")
    parser.add_argument("--runs", type=Path, default=HERE / "results_features.jsonl", help="the runs of this policy")
    args = parser.parse_args()
    given = current(read(HERE / "results.jsonl")), read(args.runs), args.policy
    print("\n".join([*lines(*given), "", over_mixes(*given)]))
