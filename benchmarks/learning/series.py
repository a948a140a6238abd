"""Does the gain depend on the size of the model? The mix `u_shape`, learned by models of 0.3 to 10 million parameters.

    python benchmarks/learning/series.py --pretrain                      # the models, once, into runs/series
    python benchmarks/learning/series.py --size 10M --seed 100 --rate 1e-4 --rate 2e-4          # tuning
    python benchmarks/learning/series.py --size 10M                      # the table's seeds at the best rate of tuning
    python benchmarks/learning/series.py --table

All models read the same kind of text; only their size and the length of pretraining differ. Runs that
`results_series.jsonl` has are not repeated.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mixes import MIXES  # in this folder
from pretrain import Recipe, pretrain, save
from run import GENERATIONS, RIVALS, ROLLOUTS, best_rates, mean_success, read
from table import share_with_interval, with_interval

from budgetalloc.cli.testbed.train import train
from budgetalloc.offline.curves import share_reached
from budgetalloc.trl import AdaptiveGRPOCallback

SIZES = {
    "0.3M": Recipe(),  # the shipped one
    "1M": Recipe(steps=1500, threads=1, width=144, layers=4),
    "3M": Recipe(steps=1200, learning_rate=7e-4, threads=1, width=224, layers=5),
    "10M": Recipe(steps=1000, rows=128, learning_rate=5e-4, threads=1, width=336, layers=7),
}
POLICIES = ("uniform4", "uniform8", "adaptive")
SEEDS, TUNING = range(5), range(100, 200)
FOLDER = Path(__file__).parents[2] / "runs" / "series"
RESULTS = Path(__file__).with_name("results_series.jsonl")


def weights(size: str) -> Path | None:
    """The model's folder; None is the shipped model."""
    return None if size == "0.3M" else FOLDER / size


def run(size: str, policy: str, rate: float, seed: int, steps: int) -> dict[str, Any]:
    """One training run on `u_shape` as a line of the results file; `mix` is the size, so that `run.py` can read it."""
    build, options = RIVALS[policy]
    generations = GENERATIONS.get(policy, 8)
    result = train(
        lambda trainer: trainer.add_callback(AdaptiveGRPOCallback(trainer, build(seed), **options)),
        steps=steps,
        eval_every=10,
        eval_samples=1,
        prompts=ROLLOUTS // generations,
        generations=generations,
        learning_rate=rate,
        seed=seed,
        rows=MIXES["u_shape"].rows(seed),
        held_out_rows=MIXES["u_shape"].held_out(),
        weights=weights(size),
        threads=1,
        progress=False,
    )
    names = ("step", "rollouts", "tokens", "seconds", "expected", "pass64")
    curve = [{name: round(asdict(point)[name], 6) for name in names} for point in result.curve]
    return {"policy": policy, "mix": size, "rate": rate, "seed": seed, "steps": steps, "curve": curve}


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The table: a line for each size, from the table's seeds at the rate that was best in tuning."""
    head = ("parameters", "start", "seeds", "best uniform, mean", "`adaptive` above it", "pass@64 above it", "share")
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    tuned = best_rates(rows, TUNING)
    for size in SIZES:
        runs: dict[str, dict[int, dict[str, Any]]] = {}
        for row in rows:
            if row["mix"] == size and row["seed"] in SEEDS and row["rate"] == tuned.get((row["policy"], size)):
                runs.setdefault(row["policy"], {})[row["seed"]] = row
        seeds = sorted(set.intersection(*(set(of_seed) for of_seed in runs.values()))) if len(runs) > 1 else []
        if "adaptive" not in runs or len(seeds) < 2:
            continue
        means = {name: np.array([mean_success(runs[name][s]["curve"]) for s in seeds]) for name in runs}
        best = max((name for name in runs if name != "adaptive"), key=lambda name: float(means[name].mean()))
        grid = np.array([point["rollouts"] for point in runs[best][seeds[0]]["curve"]], dtype=float)
        curves = {
            name: np.array([[point["expected"] for point in runs[name][s]["curve"]] for s in seeds])
            for name in (best, "adaptive")
        }
        ends = {name: np.array([runs[name][s]["curve"][-1]["pass64"] for s in seeds]) for name in curves}
        yield (
            f"| {size} | {curves[best][:, 0].mean():.3f} | {len(seeds)} | {means[best].mean():.3f} (`{best}`) "
            f"| {with_interval(means['adaptive'] - means[best])} | {with_interval(ends['adaptive'] - ends[best])} "
            f"| {share_with_interval(share_reached(curves['adaptive'], curves[best], grid, grid[-1]))} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", choices=SIZES, help="default: all")
    parser.add_argument("--policy", action="append", choices=RIVALS, help=f"default: {', '.join(POLICIES)}")
    parser.add_argument("--rate", action="append", type=float, help="default: the best of tuning")
    parser.add_argument("--seed", action="append", type=int, help="default: 0 to 4")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--pretrain", action="store_true", help="make the models that are not there, and end")
    parser.add_argument("--table", action="store_true", help="print the table, and end")
    args = parser.parse_args()
    rows = read(args.out)
    if args.table:
        print("\n".join(lines(rows)))
        return
    sizes = args.size or list(SIZES)
    torch.set_num_threads(1)
    for size in sizes if args.pretrain else []:
        folder = weights(size)
        if folder is not None and not (folder / "config.json").is_file():
            save(*pretrain(SIZES[size]), folder)
    if args.pretrain:
        return
    tuned = best_rates(rows, TUNING)
    done = {(row["mix"], row["policy"], row["rate"], row["seed"], row["steps"]) for row in rows}
    for seed, size, policy in itertools.product(args.seed or SEEDS, sizes, args.policy or POLICIES):
        for rate in args.rate or [tuned.get((policy, size))]:
            if rate is None:
                parser.error(f"no learning rate for {policy} at {size}: give --rate with --seed 100 first")
            if (size, policy, rate, seed, args.steps) in done:
                continue
            row = run(size, policy, rate, seed, args.steps)
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{size} {policy} {rate:g} seed {seed}: {mean_success(row['curve']):.3f}", flush=True)


if __name__ == "__main__":
    main()
