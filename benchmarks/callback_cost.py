"""The callback's share of a training step on the tiny test-bed, and the time to decide over 100,000 prompts.

    python benchmarks/callback_cost.py [--steps 60]

Both are measured in one run: the callback's own seconds (the metric budgetalloc/seconds, which covers deciding,
learning and logging) and the trainer's own step time, step by step.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np

import budgetalloc as ba
from budgetalloc.cli.testbed.train import train
from budgetalloc.trl import AdaptiveGRPOCallback


def step_cost(name: str, policy: ba.Policy, steps: int, per_skill: int = 80) -> tuple[str, float, float, float]:
    """Medians over the steps: milliseconds of the callback and of the whole step, and their ratio."""

    def attach(trainer: Any) -> None:
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy))

    run = train(attach, steps=steps, eval_every=steps, seed=1, threads=1, progress=False, pool_per_skill=per_skill)
    logs = [entry for entry in run.trainer.state.log_history if "budgetalloc/seconds" in entry][5:]  # warm
    own = [1000 * entry["budgetalloc/seconds"] for entry in logs]
    whole = [1000 * entry["step_time"] for entry in logs]
    ratio = statistics.median(o / w for o, w in zip(own, whole, strict=True))
    return name, statistics.median(own), statistics.median(whole), ratio


def pool_cost(prompts: int, rollouts: int, visited: float) -> tuple[float, float]:
    """Milliseconds to open a step and decide over a pool of string ids, first (hashing) and later (median of 7)."""
    policy = ba.adaptive()
    ids = [f"prompt-{n:06d}" for n in range(prompts)]
    rng = np.random.default_rng(0)
    seen = rng.choice(prompts, int(visited * prompts), replace=False)
    rewards = (rng.random(8 * seen.size) < np.repeat(rng.random(seen.size), 8)).astype(float)
    policy.observe([ids[n] for n in np.repeat(seen, 8)], rewards)
    budget, times = ba.Budget(rollouts, floor=0, cap=64), []
    for _ in range(8):
        started = time.perf_counter()
        counts = policy.allocate(ids, budget)
        times.append(1000 * (time.perf_counter() - started))
        assert counts.sum() == rollouts
    return times[0], statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    print(f"{'policy':<12}{'callback ms':>12}{'step ms':>10}{'share':>8}   (testbed: pool 2,080, 256 rollouts a step)")
    for name, policy in (("uniform", ba.uniform()), ("knapsack", ba.knapsack()), ("adaptive", ba.adaptive())):
        print("{:<12}{:>12.2f}{:>10.1f}{:>8.1%}".format(*step_cost(name, policy, steps)), flush=True)
    row = step_cost("adaptive", ba.adaptive(), 12, per_skill=3850)
    print("{:<12}{:>12.2f}{:>10.1f}{:>8.1%}   (the same with a pool of 100,100)".format(*row), flush=True)
    print(f"\n{'prompts':>9}{'rollouts':>10}{'first ms':>10}{'then ms':>9}   (adaptive, the whole pool on offer)")
    for prompts, rollouts in ((2_080, 256), (10_000, 1_024), (100_000, 8_192)):
        first, later = pool_cost(prompts, rollouts, visited=0.5)
        print(f"{prompts:>9,}{rollouts:>10,}{first:>10.1f}{later:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
