"""Screens policies in the `Learner` world: a small softmax policy instead of a language model, seconds a run.

    python benchmarks/learning/screen.py                                # all policies, all presets, 20 seeds
    python benchmarks/learning/screen.py --policy adaptive --mix u_shape --seeds 50 --jobs 2
    python benchmarks/learning/screen.py --results benchmarks/learning/results.jsonl    # and the agreement with run.py

Its figures are NOT learning results: no language model is trained. They help to choose ideas for real runs by `run.py`.
How reliable they are for that is the agreement that this command prints: the rank correlation, over policies, of the
mean success here with the mean success of the real runs, each at its own tuned learning rate. With few policies on a
mix the correlation is not informative; with two it can only be 1 or -1.

Every rollout that is generated counts: curves are read at equal rollouts, so that a policy that generates more a step
gets fewer steps. Learning rates are tuned for each policy and mix on seeds that the table does not use.
"""

import argparse
import itertools
import json
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
from mixes import MIXES
from numpy.typing import NDArray
from run import RIVALS, ROLLOUTS, read
from scipy.stats import spearmanr
from table import collect, summary
from tqdm import tqdm

from budgetalloc.offline.simulate import simulate
from budgetalloc.offline.worlds import HARD_TAIL, SEEN_ONCE, U_SHAPE, Learner
from budgetalloc.policies.bounds import Bounds

PRESETS = {"u_shape": U_SHAPE, "hard_tail": HARD_TAIL, "seen_once": SEEN_ONCE}
PROMPTS = 32  # of a batch
POINTS = 16  # of a curve, the start and the end among them
TUNING_SEEDS = 1000  # and on
Job = tuple[str, str, float, int, int]  # policy, mix, learning rate, seed, steps
_BOUNDS = ("floor", "cap", "min_group", "quantum")  # options of the callback that are the budget's here


def run(job: Job) -> tuple[Job, list[float], float]:
    """One simulated run: its job, success at `POINTS` equal distances of rollouts, and the share of mixed groups."""
    name, mix, rate, seed, steps = job
    build, options = RIVALS[name]
    given = {key: value for key, value in options.items() if key in _BOUNDS}
    policy, world = build(seed), Learner(PRESETS[mix], rate=rate, seed=seed)
    budget: Any = ROLLOUTS
    if given:
        bounds = Bounds.resolve(policy.needs, candidates=options.get("candidates"), **given)
        budget = bounds.budget(ROLLOUTS, bounds.on_offer(PROMPTS, len(world.ids)), ROLLOUTS // PROMPTS)
    total = steps * ROLLOUTS
    rollouts, success, mixed = [0], [world.success()], []
    rest = {key: value for key, value in options.items() if key not in _BOUNDS}
    # A policy may spend less than its budget in a step; it then gets more steps.
    for seen in simulate(policy, world, budget, 100 * steps, prompts=PROMPTS, **rest):
        rollouts.append(seen["rollouts"])
        success.append(seen["success"])
        mixed.append(seen["mixed_groups"])
        if rollouts[-1] >= total:
            break
    curve = np.interp(np.linspace(0, total, POINTS), rollouts, success)
    return job, curve.tolist(), float(np.mean(mixed))


def run_all(jobs: list[Job], processes: int, label: str) -> dict[Job, tuple[list[float], float]]:
    """All runs, in this process or a pool, with a bar."""
    bar = tqdm(total=len(jobs), desc=label, unit="run")
    curves = {}
    if processes == 1:
        for job in jobs:
            curves[job] = run(job)[1:]
            bar.update(1)
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for job, *rest in pool.imap_unordered(run, jobs, chunksize=4):
                curves[job] = (rest[0], rest[1])
                bar.update(1)
    bar.close()
    return curves


def tuned(curves: dict[Job, tuple[list[float], float]]) -> dict[tuple[str, str], float]:
    """For each policy and mix the rate with the largest mean success."""
    scores: dict[tuple[str, str], dict[float, list[float]]] = {}
    for (name, mix, rate, _, _), (curve, _) in curves.items():
        scores.setdefault((name, mix), {}).setdefault(rate, []).append(float(np.mean(curve)))
    return {which: max(rates, key=lambda rate: float(np.mean(rates[rate]))) for which, rates in scores.items()}


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
    parser.add_argument("--policy", action="append", choices=RIVALS, help="default: all; uniform is always run")
    parser.add_argument("--mix", action="append", choices=PRESETS, help="default: all")
    parser.add_argument("--seeds", type=int, default=20, help="of the table")
    parser.add_argument("--tuning-seeds", type=int, default=8, help="for each learning rate")
    parser.add_argument("--rate", type=float, action="append", help="to tune over; one means no tuning")
    parser.add_argument("--steps", type=int, default=150, help=f"of uniform, {ROLLOUTS} rollouts each")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--results", type=Path, help="of run.py: print how well the rankings agree")
    parser.add_argument("--out", type=Path, help="write the curves here, a line of JSON a run")
    args = parser.parse_args()
    names = list(dict.fromkeys(["uniform", *(args.policy or RIVALS)]))
    mixes, rates = args.mix or list(PRESETS), tuple(args.rate or MIXES["u_shape"].rates)
    which = list(itertools.product(names, mixes))
    best = dict.fromkeys(which, rates[0])
    if len(rates) > 1:
        seeds = range(TUNING_SEEDS, TUNING_SEEDS + args.tuning_seeds)
        tuning = [(*one, rate, seed, args.steps) for one in which for rate in rates for seed in seeds]
        best = tuned(run_all(tuning, args.jobs, "tuning"))
    jobs = [(*one, best[one], seed, args.steps) for one in which for seed in range(args.seeds)]
    curves = run_all(jobs, args.jobs, "table")
    if args.out:
        keys = ("policy", "mix", "rate", "seed", "steps")
        lines = [dict(zip(keys, job, strict=True)) | {"success": curve} for job, (curve, _) in curves.items()]
        args.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print("Simulated, no language model: these are not learning results.")
    rollouts = np.linspace(0, args.steps * ROLLOUTS, POINTS)
    real = read(args.results) if args.results else []
    for mix in mixes:
        curves: dict[str, NDArray[np.float64]] = {}
        print(f"\n{mix}, {args.seeds} seeds\n")
        print("| policy | rate | mixed groups | final | mean | mean less uniform's | to uniform's end |")
        print("|---|---|---|---|---|---|---|")
        for name in names:
            runs = [curves[name, mix, best[name, mix], seed, args.steps] for seed in range(args.seeds)]
            curves[name] = np.array([curve for curve, _ in runs])
            cells = summary(curves[name], curves["uniform"], rollouts).values()
            mixed = np.mean([share for _, share in runs])
            print(f"| {name} | {best[name, mix]:g} | {mixed:.2f} | " + " | ".join(cells) + " |")
        if args.results:
            by_seed, _ = collect(real, mix)
            there = {name: float(np.mean(list(seeds.values()))) for name, seeds in by_seed.items()}
            rank, policies = agreement({name: float(table.mean()) for name, table in curves.items()}, there)
            print(f"\nSpearman's correlation with the real runs over {policies} policies: {rank:.2f}")


if __name__ == "__main__":
    main()
