"""What a variant changes, compared with `sampled` and uniform groups and paired by seed: features of texts, or others.

    python benchmarks/learning/with_features.py
    python benchmarks/learning/with_features.py --policy adaptive_3 --runs benchmarks/learning/rounds.jsonl
    python benchmarks/learning/with_features.py --policy even_3 --runs benchmarks/learning/even.jsonl
    python benchmarks/learning/with_features.py --policy adaptive_singles --runs benchmarks/learning/singles.jsonl
    python benchmarks/learning/with_features.py --parts

The runs of `adaptive_text` are in `results_features.jsonl`, those of `adaptive(rounds=3)` in `rounds.jsonl`, and those
of `adaptive_singles` in `singles.jsonl`, at the learning rate of `sampled`; their own rates were not tuned. Those of
`adaptive(explore=1, rounds=3)` are in `even.jsonl`, on `reasoning` at two thirds of that rate. The others are the
table's. Cells are mean success and pass@64.

`--parts` shows which part of `sampled` gains what, from `ablation.jsonl`, at the same rates. `own_groups` chooses
prompts as `sampled` does, in groups of at least 4 with their own mean as the baseline. `equal_singles` draws single
rollouts of random prompts, and has the baseline.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from run import read
from table import HERE, Row, averaged, best_uniform, head, of_table, results, row, with_interval


def compared(rows: list[Row], variants: list[Row], names: Sequence[str]) -> Iterator[tuple[str, list[NDArray]]]:
    """Each mix, and the `results` of uniform, of the default and of the variants on the seeds that all have."""
    for mix in dict.fromkeys(run["mix"] for run in variants):
        of_mix, tried = of_table(rows, mix), [run for run in variants if run["mix"] == mix]
        sources = [(of_mix, best_uniform(rows, mix)), (of_mix, "sampled"), *((tried, name) for name in names)]
        by_name = [{run["seed"]: run for run in source if run["policy"] == name} for source, name in sources]
        seeds = sorted(set.intersection(*map(set, by_name)))
        if len(seeds) > 1:
            yield mix, [results(runs, seeds) for runs in by_name]


def _cells(found: Sequence[NDArray]) -> list[str]:
    return [f"{mean.mean():.3f} / {coverage.mean():.3f}" for mean, coverage in found]


def lines(rows: list[Row], variant: list[Row], name: str = "adaptive_text") -> Iterator[str]:
    """The lines of the table, from the table's rows and those of the variant."""
    less = ("mean minus `sampled`'s", "pass@64 minus", "mean minus uniform's", "pass@64 minus")
    yield from head(("mix", "seeds", "best uniform", "`sampled`", f"`{name}`", *less))
    for mix, (plain, default, own) in compared(rows, variant, [name]):
        gains = [with_interval(gain) for base in (default, plain) for gain in own - base]
        yield row((f"`{mix}`", own.shape[1], *_cells([plain, default, own]), *gains))


def over_mixes(rows: list[Row], variant: list[Row], name: str = "adaptive_text", base: str = "sampled") -> str:
    """The differences to `sampled`, or to "uniform", averaged over the mixes."""
    found = [
        (plain if base == "uniform" else default, own) for _, (plain, default, own) in compared(rows, variant, [name])
    ]
    if not found:
        return f"- **Over the mixes, minus `{base}`'s**: no mix with two seeds."
    mean, coverage = (averaged([its[at] - other[at] for other, its in found]) for at in range(2))
    return f"- **Over the mixes, minus `{base}`'s**: mean {mean}, pass@64 {coverage}."


def parts(rows: list[Row], variants: list[Row]) -> Iterator[str]:
    """The lines of the table of the parts, and one of means over the mixes."""
    less = ("both minus choice alone", "both minus baseline alone", "pass@64 minus baseline alone")
    alone = ("best uniform", "choice alone", "baseline alone", "both: `sampled`")
    yield from head(("mix", "seeds", *alone, *less))
    gains = []
    for mix, (plain, both, choice, singles) in compared(rows, variants, ["own_groups", "equal_singles"]):
        pairs = (both[0] - choice[0], both[0] - singles[0], both[1] - singles[1])
        yield row((f"`{mix}`", both.shape[1], *_cells([plain, choice, singles, both]), *map(with_interval, pairs)))
        gains.append([(part[0] - plain[0]).mean() for part in (choice, singles, both)])
    if gains:
        yield row(("mean minus uniform's", "", "", *(f"{x:+.3f}" for x in np.mean(gains, axis=0)), "", "", ""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="adaptive_text")
    parser.add_argument("--runs", type=Path, default=HERE / "results_features.jsonl", help="the runs of this policy")
    parser.add_argument("--parts", action="store_true", help="the parts of `sampled` instead")
    args = parser.parse_args()
    table = read(HERE / "results.jsonl")
    if args.parts:
        print("\n".join(parts(table, read(HERE / "ablation.jsonl"))))
    else:
        given = table, read(args.runs), args.policy
        print("\n".join([*lines(*given), "", over_mixes(*given)]))
