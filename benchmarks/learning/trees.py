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

ARMS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "even, 4 roots": {"points": 5, "roots": 0.5},
    "even, 2 roots": {"points": 5, "roots": 0.25},
    "late, 4 roots": {"points": [15, 25], "roots": 0.5},
    "entropy, 4 roots": {"points": 5, "roots": 0.5, "branch": "entropy"},
}
SEEDS, STEPS, RATE = (100, 101), 30, 2e-4
OUT = Path(__file__).with_suffix(".jsonl")


def run(arm: str, seed: int, rate: float) -> dict[str, Any]:
    """One run, with its curve: generated tokens and success."""
    from budgetalloc.cli.testbed.train import train
    from budgetalloc.trl import AdaptiveGRPOCallback
    from budgetalloc.trl.experimental.trees import Trees

    mix, settings = MIXES["chain"], ARMS[arm]

    def attach(trainer: Any) -> None:
        if settings is not None:
            trainer.rollout_func = Trees(**settings, seed=seed)
        trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.uniform(seed=seed)))

    made = train(
        attach,
        steps=STEPS,
        prompts=16,
        learning_rate=rate,
        seed=seed,
        rows=mix.rows(seed),
        held_out_rows=mix.held_out(),
        language=mix.language,
        eval_every=5,
        eval_samples=1,  # the exact probability is what counts
        threads=1,
        progress=False,
    )
    by_step = [x["budgetalloc/trees/tokens"] for x in made.trainer.state.log_history if "budgetalloc/trees/tokens" in x]
    shared = np.cumsum([0, *by_step]).tolist()
    curve = [[int(shared[x.step]) if by_step else x.tokens, round(x.expected, 5)] for x in made.curve]
    return {"arm": arm, "seed": seed, "rate": rate, "curve": curve}


def tokens_to(curve: list[list[float]], success: float) -> float:
    """The tokens at which a curve first reaches this success, by linear interpolation; NaN if it never does.

    >>> tokens_to([[0, 0.2], [100, 0.4], [200, 0.6]], 0.5)
    150.0
    """
    for (before, low), (after, high) in itertools.pairwise(curve):
        if low < success <= high:
            return float(before + (after - before) * (success - low) / (high - low))
    return float("nan")


def table(rows: list[dict[str, Any]]) -> str:
    """For each arm and rate, mean over the seeds that `plain` has too: tokens of the run, success at its end, and the
    tokens to plain's success after half of its steps and at its end, as a share of plain's tokens to the same."""
    plain = {row["seed"]: row["curve"] for row in rows if row["arm"] == "plain" and row["rate"] == RATE}
    lines = ["| arm | rate | seeds | tokens | success | tokens to plain's half | to plain's end |", "|---" * 7 + "|"]
    for arm, rate in dict.fromkeys((row["arm"], row["rate"]) for row in rows):
        mine = [row for row in rows if (row["arm"], row["rate"]) == (arm, rate) and row["seed"] in plain]
        cells = [f"{np.mean([row['curve'][-1][at] for row in mine]):{form}}" for at, form in ((0, ",.0f"), (1, ".3f"))]
        for at in (len(plain[mine[0]["seed"]]) // 2, -1):
            shares = []
            for row in mine:
                until = plain[row["seed"]][at][1]
                shares.append(tokens_to(row["curve"], until) / tokens_to(plain[row["seed"]], until))
            cells.append(", ".join("never" if np.isnan(x) else f"{x:.2f}" for x in shares))
        seeds = ", ".join(str(row["seed"]) for row in mine)
        lines.append(f"| {arm} | {rate:g} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", choices=ARMS, help="default: all")
    parser.add_argument("--seed", type=int, action="append", help="default: 100 and 101")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    done = {(row["arm"], row["seed"], row["rate"]) for row in read(OUT)}
    for seed, arm in itertools.product(args.seed or SEEDS, args.arm or ARMS):
        if (arm, seed, args.rate) not in done and not args.table:
            with OUT.open("a") as file:
                file.write(json.dumps(run(arm, seed, args.rate)) + "\n")
    print(table(read(OUT)))


if __name__ == "__main__":
    main()
