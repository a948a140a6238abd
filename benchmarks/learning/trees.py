"""Tokens to the same success: plain groups and rollouts that branch, on the mix `chain`. Resumable.

    python benchmarks/learning/trees.py                     # what is missing in trees.jsonl, then the table
    python benchmarks/learning/trees.py --arm plain --seed 102
    python benchmarks/learning/trees.py --table

A step has 16 prompts and 8 rollouts of each, as many rows to train on in every arm. A step of a chain is five tokens.
The success is the exact probability of the right answer to the held-out prompts. Tokens that branches share are counted
once.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from mixes import MIXES  # in this folder
from run import read

import budgetalloc as ba
from budgetalloc.offline.intervals import reached

ARMS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "even, 4 roots": {"points": 5, "roots": 0.5},
    "even, 2 roots": {"points": 5, "roots": 0.25},
    "late, 4 roots": {"points": [15, 25], "roots": 0.5},
}
SEEDS, STEPS, RATE = (100, 101), 30, 2e-4
OUT = Path(__file__).with_suffix(".jsonl")


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, with its curve: generated tokens and success."""
    from train import train

    from budgetalloc.contrib.trees import Trees
    from budgetalloc.trl import AdaptiveGRPOCallback

    mix, settings = MIXES["chain"], ARMS[arm]

    def attach(trainer: Any) -> None:
        if settings is not None:
            trainer.rollout_func = Trees(**settings, seed=seed)
        trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.uniform(seed=seed)))

    made = train(
        attach,
        steps=STEPS,
        prompts=16,
        learning_rate=RATE,
        seed=seed,
        **mix.task(seed),
        eval_every=5,
        threads=1,
        progress=False,
    )
    by_step = [x["budgetalloc/trees/tokens"] for x in made.trainer.state.log_history if "budgetalloc/trees/tokens" in x]
    shared = np.cumsum([0, *by_step]).tolist()
    curve = [[int(shared[x.step]) if by_step else x.tokens, round(x.expected, 5)] for x in made.curve]
    return {"arm": arm, "seed": seed, "rate": RATE, "curve": curve}


def mean_success(curve: list[list[float]], tokens: float) -> float:
    """Mean success over the first tokens of a curve, by the trapezoid rule.

    >>> round(mean_success([[0, 0.2], [100, 0.4], [200, 0.9]], 100), 6)
    0.3
    """
    at, success = np.array(curve).T
    points = np.append(at[at < tokens], tokens)
    values = np.interp(points, at, success)
    return float(np.sum(np.diff(points) * (values[1:] + values[:-1]) / 2) / tokens)


def table(rows: list[dict[str, Any]]) -> str:
    """A row for each arm, with a number for each seed that all arms have."""
    arms: dict[str, dict[int, list[list[float]]]] = {row["arm"]: {} for row in rows}
    for row in rows:
        arms[row["arm"]][row["seed"]] = row["curve"]
    seeds = sorted(set.intersection(*(set(curves) for curves in arms.values())))
    until = min(curve[-1][0] for curves in arms.values() for curve in curves.values())
    lines = [f"| arm | tokens a step | success at the end | mean success over {until:,} tokens | tokens to 0.6 |"]
    lines.append("|---" * 5 + "|")
    for arm, curves in arms.items():
        mine = [curves[seed] for seed in seeds]
        cells = [f"{np.mean([curve[-1][0] for curve in mine]) / STEPS:,.0f}"]
        cells.append(" and ".join(f"{curve[-1][1]:.3f}" for curve in mine))
        cells.append(" and ".join(f"{mean_success(curve, until):.3f}" for curve in mine))
        cells.append(" and ".join(f"{reached(*np.array(curve).T, 0.6):,.0f}" for curve in mine))
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", choices=ARMS, help="default: all")
    parser.add_argument("--seed", type=int, action="append", help="default: 100 and 101")
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    done = {(row["arm"], row["seed"]) for row in read(OUT)}
    for seed, arm in itertools.product(args.seed or SEEDS, args.arm or ARMS):
        if (arm, seed) not in done and not args.table:
            with OUT.open("a") as file:
                file.write(json.dumps(run(arm, seed)) + "\n")
    print(table(read(OUT)))


if __name__ == "__main__":
    main()
