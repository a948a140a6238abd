"""Tokens to the same success under budgets of length, on `chain` and on `verbose`. Resumable.

    python benchmarks/learning/lengths.py                    # what is missing in lengths.jsonl, then the table
    python benchmarks/learning/lengths.py --mix verbose --policy sampled --seed 7
    python benchmarks/learning/lengths.py --table

A run has 70 prompts (`verbose`: 32), which return about every fourth step of 16 prompts (8) with 8 rollouts of each. A
step of a chain is five tokens, so a right answer to `chain` has 11 to 41 with the end of text, and one to `verbose` 16
to 196, where 16 to 31 would do. The success on held-out prompts has no limit but that: on `chain` the exact probability
of the right answer, on `verbose` the share of right ones among four rollouts of each of 68 prompts. Tokens are those
trained on. Under a cap, transformers generates a batch up to its largest cap, and the rest is dropped.
"""

import argparse
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chain  # in this folder
import numpy as np
import verbose
from run import read
from trees import mean_success

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.offline.intervals import reached


@dataclass(frozen=True)
class Setting:
    """What all runs of a mix share."""

    language: Any
    arms: dict[str, dict[str, Any]]
    """Arguments: of `LengthSchedule`, `LengthCap`, `ThoughtAndAnswer` or `TruncatedThoughts`."""
    rates: dict[str, float]
    """By policy."""
    prompts: int
    """Of a step."""
    per_length: int
    """Prompts of each number of steps."""
    held_out: int
    """The same, of the prompts that success is measured on."""
    steps: int
    every: int
    """Steps between two measurements."""
    goal: float


MIXES = {
    "chain": Setting(
        language=chain,
        arms={
            "plain": {},
            "schedule: 41, 36, 33": {"schedule": (41, 0.9, 5)},
            "cap: 1.25 longest": {"cap": {}},
            "cap: 1.0 mean": {"cap": {"of": "mean", "times": 1.0}},
        },
        rates={"uniform": 2e-4, "sampled": 3e-4},  # tuned in results.jsonl
        prompts=16,
        per_length=10,
        held_out=30,
        steps=15,
        every=3,
        goal=0.5,
    ),
    "verbose": Setting(
        language=verbose,
        arms={
            "plain": {},
            "schedule: 70, 56, 44": {"schedule": (70, 0.8, 4)},
            "cap: 1.25 longest": {"cap": {}},
            "cap: 1.0 mean": {"cap": {"of": "mean", "times": 1.0}},
            "thought 40, answer 5": {"thought": (40, 5)},
            "thoughts truncated at 30 and 60": {"truncated": {"budgets": [30, 60], "answer": 5, "roots": 0.5}},
        },
        rates={"uniform": 1e-4, "sampled": 1e-4},  # this and the arms were chosen on seed 100
        prompts=8,
        per_length=8,
        held_out=17,
        steps=10,
        every=5,
        goal=0.38,
    ),
}
POLICIES: dict[str, Callable[[int], ba.Policy]] = {
    "uniform": lambda seed: ba.uniform(seed=seed),
    "sampled": lambda seed: policies.sampled(groups=2, seed=seed),
}
SEEDS = tuple(range(10))
OUT = Path(__file__).with_suffix(".jsonl")


def run(mix: str, policy: str, arm: str, seed: int, rate: float | None = None) -> dict[str, Any]:
    """One run, with its curve: tokens and success."""
    from train import train

    from budgetalloc.contrib.lengths import LengthCap, LengthSchedule
    from budgetalloc.contrib.thought_and_answer import ThoughtAndAnswer
    from budgetalloc.contrib.truncated_thoughts import TruncatedThoughts
    from budgetalloc.trl import AdaptiveGRPOCallback

    setting = MIXES[mix]
    given, rate = setting.arms[arm], rate or setting.rates[policy]

    def attach(trainer: Any) -> None:
        if "thought" in given:
            trainer.rollout_func = ThoughtAndAnswer(*given["thought"], end=verbose.END)
        if "truncated" in given:
            trainer.rollout_func = TruncatedThoughts(**given["truncated"], end=verbose.END, seed=seed)
        parts = [LengthCap(trainer, **given["cap"])] if "cap" in given else []
        trainer.add_callback(AdaptiveGRPOCallback(trainer, POLICIES[policy](seed), parts=parts))
        if "schedule" in given:
            trainer.add_callback(LengthSchedule(trainer, *given["schedule"]))

    made = train(
        attach,
        steps=setting.steps,
        prompts=setting.prompts,
        learning_rate=rate,
        seed=seed,
        language=setting.language,
        rows=setting.language.pool(setting.per_length, seed),
        held_out_rows=setting.language.held_out(setting.held_out),
        eval_every=setting.every,
        threads=1,
        progress=False,
    )
    log = made.trainer.state.log_history

    def logged(name: str) -> list[float]:
        return [round(entry[name], 5) for entry in log if name in entry]

    shared = np.cumsum([0, *logged("budgetalloc/trees/tokens")]).tolist()  # tokens that rows share count once
    return {
        "mix": mix,
        "policy": policy,
        "arm": arm,
        "seed": seed,
        "rate": rate,
        "curve": [[int(shared[x.step]) if shared[1:] else x.tokens, round(x.expected, 5)] for x in made.curve],
        "clipped": logged("completions/clipped_ratio"),
        "cut": logged("budgetalloc/lengths/cut"),
        "length": logged("completions/mean_length"),
    }


def key(row: dict[str, Any]) -> tuple[str, str, str, int]:
    return row["mix"], row["policy"], row["arm"], row["seed"]


def interval(values: list[float]) -> str:
    """The mean, and its 95 % interval over seeds by Student's t."""
    from scipy.stats import t

    if len(values) < 2:
        return f"{np.mean(values):+.3f}"
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):+.3f} ({np.mean(values) - half:+.3f} to {np.mean(values) + half:+.3f})"


def gain(curve: list[list[float]], plain: list[list[float]]) -> float:
    """Mean success minus plain's, over as many tokens as the shorter run has.

    >>> round(gain([[0, 0.2], [100, 0.6]], [[0, 0.2], [200, 0.6]]), 6)  # 0.4 - 0.3
    0.1
    """
    until = min(curve[-1][0], plain[-1][0])
    return mean_success(curve, until) - mean_success(plain, until)


def table(rows: list[dict[str, Any]], mix: str, policy: str) -> str:
    """A row for each arm, over the seeds that all arms have. Tokens to a success are those of the mean curve."""
    setting = MIXES[mix]
    arms: dict[str, dict[int, Any]] = {arm: {} for arm in setting.arms}
    for row in rows:
        if (row["mix"], row["policy"]) == (mix, policy):
            arms[row["arm"]][row["seed"]] = row["curve"]
    common = sorted(set.intersection(*(set(curves) for curves in arms.values())))
    if not common:
        return f"{mix}, {policy}: no seed has all arms"
    titles = ["tokens a rollout, first and last", "all tokens", "success at the end", "mean success minus plain's"]
    head = f"{mix}, {policy}, {len(common)} seeds"
    lines = [head, f"| arm | {' | '.join(titles)} | tokens to {setting.goal} |", "|---" * 6 + "|"]
    for arm, curves in arms.items():
        mine = [curves[seed] for seed in common]
        mean = np.mean(mine, axis=0)
        lengths = np.diff(mean[:, 0]) / (setting.every * setting.prompts * 8)
        gains = [gain(curves[seed], arms["plain"][seed]) for seed in common]
        cells = [arm, f"{lengths[0]:.1f}, {lengths[-1]:.1f}", f"{mean[-1, 0]:,.0f}", f"{mean[-1, 1]:.3f}"]
        cells.append("0" if arm == "plain" else interval(gains))
        cells.append(f"{reached(*mean.T, setting.goal):,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mix", choices=MIXES, default="chain")
    parser.add_argument("--policy", choices=POLICIES, default="uniform")
    parser.add_argument("--arm", action="append", help="default: all of the mix")
    parser.add_argument("--seed", type=int, action="append", help="default: 0 to 9")
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    done = {key(row) for row in read(OUT)}
    for seed, arm in itertools.product(args.seed or SEEDS, args.arm or MIXES[args.mix].arms):
        if (args.mix, args.policy, arm, seed) not in done and not args.table:
            row = run(args.mix, args.policy, arm, seed)
            with OUT.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(read(OUT), args.mix, args.policy))


if __name__ == "__main__":
    main()
