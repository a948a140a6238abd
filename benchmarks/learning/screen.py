"""Screens policies in the `Learner` world: a small softmax policy instead of a language model, seconds a run.

    python benchmarks/learning/screen.py                                # all policies, all twins, 20 seeds
    python benchmarks/learning/screen.py --policy adaptive --mix u_shape --seeds 50 --jobs 2
    python benchmarks/learning/screen.py --results benchmarks/learning/results.jsonl    # and the agreement with run.py
    python benchmarks/learning/screen.py --mix hard_once --out screened.jsonl           # resumable: run it again

Its figures are NOT learning results: no language model is trained. They help to choose ideas for real runs by `run.py`.
How reliable they are for that is the agreement that this command prints: the rank correlation, over policies, of the
mean success here with the mean success of the real runs, each at its own tuned learning rate; where a policy has no
real run on the table's seeds, those on tuning seeds count. With few policies on a mix the correlation is not
informative, and with two it can only be 1 or -1: below `ENOUGH` policies the command says so. How well a twin was made
is the distance between the curves of uniform here and there, which the command also prints.

Every rollout that is generated counts: curves are read at equal rollouts, so that a policy that generates more a step
gets fewer steps. Learning rates are tuned for each policy and mix on seeds that the table does not use.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import twins  # in this folder
from mixes import MIXES
from numpy.typing import NDArray
from run import GENERATIONS, RIVALS, ROLLOUTS, best_rates, read
from scipy.stats import spearmanr
from table import STEPS, TUNING_SEEDS, collect, on_grid, summary
from tqdm import tqdm

from budgetalloc.offline.simulation import simulate
from budgetalloc.policies.interface import Bounds

ENOUGH = 5  # policies for a rank correlation that says something
POINTS = 16  # of a curve, the start and the end among them
FIRST_TUNING_SEED = 1000  # and on
Job = tuple[str, str, float, int, int]  # policy, mix, learning rate, seed, steps
POLICIES = [
    name for name, (_, options) in RIVALS.items() if not {"cost", "features"} & set(options)
]  # no tokens or texts
_BOUNDS = ("floor", "cap", "min_group", "quantum")  # options of the callback that are the budget's here


def steps_of(name: str, world: Any, seed: int, rollouts: int, reward: Any = None) -> Iterator[dict[str, Any]]:
    """The steps of `simulate` with a policy of `RIVALS`, attached as in `run.py`, until it has generated so many."""
    build, options = RIVALS[name]
    given = {key: value for key, value in options.items() if key in _BOUNDS}
    policy, group = build(seed), GENERATIONS.get(name, 8)
    prompts = ROLLOUTS // group
    budget: Any = ROLLOUTS
    if given:
        bounds = Bounds.resolve(policy.needs, candidates=options.get("candidates"), **given)
        budget = bounds.budget(ROLLOUTS, bounds.on_offer(prompts, len(world.ids)), group)
    left_out = (*_BOUNDS, "fallback")  # `simulate` has no fallback for small pools
    rest = {key: value for key, value in options.items() if key not in left_out}
    # A policy may spend less than its budget in a step; it then gets more steps.
    for seen in simulate(policy, world, budget, rollouts, prompts=prompts, reward=reward, **rest):
        yield seen
        if seen["rollouts"] >= rollouts:
            return


def run(job: Job) -> tuple[Job, list[float], float]:
    """One simulated run: its job, success at `POINTS` equal distances of rollouts, and the share of mixed groups."""
    name, mix, rate, seed, steps = job
    world, total = twins.world(mix, rate, seed), steps * ROLLOUTS
    rollouts, success, mixed = [0], [world.success()], []
    for seen in steps_of(name, world, seed, total, twins.REWARDS.get(mix)):
        rollouts.append(seen["rollouts"])
        success.append(seen["success"])
        mixed.append(seen["mixed_groups"])
    curve = np.interp(np.linspace(0, total, POINTS), rollouts, success)
    return job, curve.tolist(), float(np.mean(mixed))


def run_all(
    jobs: list[Job], processes: int, label: str, out: Path | None = None
) -> dict[Job, tuple[list[float], float]]:
    """All runs, in this process or a pool, with a bar; `out` is read for runs done before, and grows by the others."""
    keys = ("policy", "mix", "rate", "seed", "steps")
    done = {tuple(row[key] for key in keys): (row["success"], row["mixed"]) for row in (read(out) if out else [])}
    curves = {job: done[job] for job in jobs if job in done}
    todo = [job for job in jobs if job not in done]
    with contextlib.ExitStack() as stack:
        ended = map(run, todo)
        if processes > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(processes))
            ended = pool.imap_unordered(run, todo, chunksize=4)
        for job, curve, mixed in tqdm(ended, total=len(todo), desc=label, unit="run"):
            curves[job] = (curve, mixed)
            if out:
                with out.open("a") as file:
                    row = dict(zip(keys, job, strict=True)) | {"success": curve, "mixed": mixed}
                    file.write(json.dumps(row) + "\n")
    return curves


def tuned(curves: dict[Job, tuple[list[float], float]]) -> dict[tuple[str, str], float]:
    """For each policy and mix the rate with the largest mean success."""
    scores: dict[tuple[str, str], dict[float, list[float]]] = {}
    for (name, mix, rate, _, _), (curve, _) in curves.items():
        scores.setdefault((name, mix), {}).setdefault(rate, []).append(float(np.mean(curve)))
    return {which: max(rates, key=lambda rate: float(np.mean(rates[rate]))) for which, rates in scores.items()}


def real_means(rows: list[dict[str, Any]], mix: str) -> tuple[dict[str, float], list[str]]:
    """The mean success of the real runs of each policy at its tuned rate, and the policies with tuning seeds alone."""
    by_seed, grid = collect(rows, mix)
    means = {name: float(np.mean(list(seeds.values()))) for name, seeds in by_seed.items()}
    rates = {name: rate for (name, other), rate in best_rates(rows, TUNING_SEEDS).items() if other == mix}
    tuning_only = sorted(set(rates) - set(means))
    for name in tuning_only:
        runs = [row for row in rows if (row["policy"], row["mix"], row["rate"]) == (name, mix, rates[name])]
        means[name] = float(np.mean([on_grid(row, grid) for row in runs if row["seed"] in TUNING_SEEDS]))
    return means, tuning_only


def distance(mean: NDArray[np.float64], rows: list[dict[str, Any]], mix: str, rate: float) -> float:
    """Root mean square distance of uniform's mean curve here from that of its real runs at this rate, on all seeds."""
    runs = [row for row in rows if (row["policy"], row["mix"], row["rate"]) == ("uniform", mix, rate)]
    if not runs:
        return float("nan")
    grid = np.linspace(0, STEPS * ROLLOUTS, len(mean))
    there = np.mean([on_grid(row, grid) for row in runs], axis=0)
    return float(np.sqrt(np.mean((mean - there) ** 2)))


def agreement(here: dict[str, float], there: dict[str, float]) -> tuple[float, int]:
    """Spearman's rank correlation over the policies that both hold, and their number; NaN for fewer than two.

    >>> rank, policies = agreement({"a": 0.1, "b": 0.2, "c": 0.3}, {"a": 0.5, "b": 0.7, "c": 0.6, "d": 0.1})
    >>> round(float(rank), 3), policies
    (0.5, 3)
    """
    both = sorted(set(here) & set(there))
    if len(both) < 2:
        return float("nan"), len(both)
    return float(spearmanr([here[x] for x in both], [there[x] for x in both]).statistic), len(both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", choices=POLICIES, help="default: all; uniform is always run")
    parser.add_argument("--mix", action="append", choices=twins.TWINS, help="default: all that have a twin")
    parser.add_argument("--seeds", type=int, default=20, help="of the table")
    parser.add_argument("--tuning-seeds", type=int, default=8, help="for each learning rate")
    parser.add_argument("--rate", type=float, action="append", help="to tune over; one means no tuning")
    parser.add_argument("--steps", type=int, default=150, help=f"of uniform, {ROLLOUTS} rollouts each")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--results", type=Path, action="append", help="of run.py: print how well the rankings agree")
    parser.add_argument("--out", type=Path, help="append the curves, a line a run; runs in it are not repeated")
    args = parser.parse_args()
    names = list(dict.fromkeys(["uniform", *(args.policy or POLICIES)]))
    mixes = args.mix or list(twins.TWINS)
    which = list(itertools.product(names, mixes))
    rates = {one: tuple(args.rate or MIXES[one[1]].rates) for one in which}
    best = {one: grid[0] for one, grid in rates.items()}
    seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + args.tuning_seeds)
    tuning = [
        (*one, rate, seed, args.steps) for one in which if len(rates[one]) > 1 for rate in rates[one] for seed in seeds
    ]
    best |= tuned(run_all(tuning, args.jobs, "tuning", args.out))
    jobs = [(*one, best[one], seed, args.steps) for one in which for seed in range(args.seeds)]
    done = run_all(jobs, args.jobs, "table", args.out)
    print("Simulated, no language model: these are not learning results.")
    rollouts = np.linspace(0, args.steps * ROLLOUTS, POINTS)
    real = [row for path in args.results or () for row in read(path)]
    for mix in mixes:
        curves: dict[str, NDArray[np.float64]] = {}
        print(f"\n{mix}, {args.seeds} seeds\n")
        print("| policy | rate | mixed groups | final | mean | mean minus uniform's | to uniform's end |")
        print("|---|---|---|---|---|---|---|")
        for name in names:
            runs = [done[name, mix, best[name, mix], seed, args.steps] for seed in range(args.seeds)]
            curves[name] = np.array([curve for curve, _ in runs])
            cells = summary(curves[name], curves["uniform"], rollouts).values()
            mixed = np.mean([share for _, share in runs])
            print(f"| {name} | {best[name, mix]:g} | {mixed:.2f} | " + " | ".join(cells) + " |")
        if real:
            there, tuning_only = real_means(real, mix)
            rank, policies = agreement({name: float(table.mean()) for name, table in curves.items()}, there)
            few = f", too few to mean anything (fewer than {ENOUGH})" if policies < ENOUGH else ""
            print(f"\nSpearman's correlation with the real runs over {policies} policies: {rank:.2f}{few}")
            if used := [name for name in tuning_only if name in curves]:
                print(f"Real runs on tuning seeds alone: {', '.join(used)}")
            apart = distance(curves["uniform"].mean(axis=0), real, mix, best["uniform", mix])
            if args.steps == STEPS and np.isfinite(apart):  # else no real run at this rate, or of other length
                print(f"Uniform's curve here is {apart:.3f} (root mean square) from the real one at the same rate")


if __name__ == "__main__":
    main()
