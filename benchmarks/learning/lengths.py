"""Tokens to the same success: a schedule of the completion length, and a cap for each prompt, on `chain`. Resumable.

    python benchmarks/learning/lengths.py                    # what is missing in lengths.jsonl, then the table
    python benchmarks/learning/lengths.py --policy adaptive --seed 7
    python benchmarks/learning/lengths.py --table

70 prompts, which return about every fourth step of 16 prompts and 8 rollouts of each. A step of a chain is five tokens,
so a right answer has 11 to 41 with the end of text. The success is the exact probability of the right answer to the
held-out prompts, without any limit. Tokens are those trained on.
"""

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chain  # in this folder
import numpy as np
from mixes import MIXES
from run import read
from trees import mean_success

import budgetalloc as ba
from budgetalloc.offline.intervals import reached

ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "schedule: 41, 36, 33": {"schedule": (41, 0.9, 5)},
    "cap: 1.25 longest": {"cap": {}},
}
POLICIES: dict[str, tuple[Callable[[int], ba.Policy], float]] = {  # and the rate tuned in results.jsonl
    "uniform": (lambda seed: ba.uniform(seed=seed), 2e-4),
    "adaptive": (lambda seed: ba.adaptive(seed=seed), 3e-4),
}
SEEDS, STEPS, GOAL = tuple(range(10)), 15, 0.5
OUT = Path(__file__).with_suffix(".jsonl")


def run(policy: str, arm: str, seed: int) -> dict[str, Any]:
    """One run, with its curve: tokens and success."""
    from train import train

    from budgetalloc.contrib.lengths import LengthCap, LengthSchedule
    from budgetalloc.trl import AdaptiveGRPOCallback

    (build, rate), given = POLICIES[policy], ARMS[arm]

    def attach(trainer: Any) -> None:
        parts = [LengthCap(trainer, **given["cap"])] if "cap" in given else []
        trainer.add_callback(AdaptiveGRPOCallback(trainer, build(seed), parts=parts))
        if "schedule" in given:
            trainer.add_callback(LengthSchedule(trainer, *given["schedule"]))

    made = train(
        attach,
        steps=STEPS,
        prompts=16,
        learning_rate=rate,
        seed=seed,
        **MIXES["chain"].task(seed) | {"rows": chain.pool(10, seed)},
        eval_every=3,
        threads=1,
        progress=False,
    )
    cut = [x["budgetalloc/lengths/cut"] for x in made.trainer.state.log_history if "budgetalloc/lengths/cut" in x]
    clipped = [x["completions/clipped_ratio"] for x in made.trainer.state.log_history if "loss" in x]
    return {
        "policy": policy,
        "arm": arm,
        "seed": seed,
        "rate": rate,
        "curve": [[x.tokens, round(x.expected, 5)] for x in made.curve],
        "clipped": [round(x, 5) for x in clipped],
        "cut": [round(x, 5) for x in cut],
    }


def key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["policy"], row["arm"], row["seed"]


def interval(values: list[float]) -> str:
    """The mean, and its 95 % interval over seeds by Student's t."""
    from scipy.stats import t

    if len(values) < 2:
        return f"{np.mean(values):+.3f}"
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):+.3f} ({np.mean(values) - half:+.3f} to {np.mean(values) + half:+.3f})"


def table(rows: list[dict[str, Any]], policy: str) -> str:
    """A row for each arm, over the seeds that all arms have."""
    arms: dict[str, dict[int, list[list[float]]]] = {arm: {} for arm in ARMS}
    for row in rows:
        if row["policy"] == policy:
            arms[row["arm"]][row["seed"]] = row["curve"]
    common = sorted(set.intersection(*(set(curves) for curves in arms.values())))
    if not common:
        return f"{policy}: no seed has all arms"
    until = min(arms[arm][seed][-1][0] for arm in arms for seed in common)
    titles = ["tokens a step", "success at the end", f"mean success over {until:,} tokens, less plain's"]
    lines = [f"{policy}, {len(common)} seeds", f"| arm | {' | '.join(titles)} | tokens to {GOAL} |", "|---" * 5 + "|"]
    for arm, curves in arms.items():
        mine = [curves[seed] for seed in common]
        gains = [mean_success(curves[seed], until) - mean_success(arms["plain"][seed], until) for seed in common]
        cells = [arm, f"{np.mean([x[-1][0] for x in mine]) / STEPS:,.0f}", f"{np.mean([x[-1][1] for x in mine]):.3f}"]
        cells.append("0" if arm == "plain" else interval(gains))
        cells.append(f"{np.mean([reached(*np.array(x).T, GOAL) for x in mine]):,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", choices=POLICIES, default="uniform")
    parser.add_argument("--seed", type=int, action="append", help="default: 0 to 9")
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    done = {key(row) for row in read(OUT)}
    for seed, arm in itertools.product(args.seed or SEEDS, ARMS):
        if (args.policy, arm, seed) not in done and not args.table:
            row = run(args.policy, arm, seed)
            with OUT.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(read(OUT), args.policy))


if __name__ == "__main__":
    main()
