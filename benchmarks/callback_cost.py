"""The callback's share of a training step on the tiny test-bed, compared with plain TRL in one run; for idle cores.

    python benchmarks/callback_cost.py [--steps 60] [--pools 2080 100100 1001000]

The callback's own time is what the metric budgetalloc/seconds covers: how long the trainer waits while the callback
decides, learns and logs, without TRL's generation. `adaptive` decides in a thread while the trainer computes gradients;
"adaptive, then" is the same without the thread. A pool is the test-bed's, repeated under other names where it is too
small; `benchmarks/scale_of_pool.py` has the processor times of the decisions alone.
"""

import argparse
import statistics
import time
from typing import Any
from unittest import mock

from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.train import train
from budgetalloc.trl import AdaptiveGRPOCallback, callback

PER_SKILL = 3_850
WARM = 4  # steps that are not counted


class Steps(TrainerCallback):  # type: ignore[misc]
    """The time of each step, in milliseconds."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._begun = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.milliseconds.append(1000 * (time.perf_counter() - self._begun))


def rows(prompts: int) -> list[dict[str, Any]]:
    """So many rows, named by the column "row"."""
    pool = skills.pool(min(prompts // len(skills.SKILLS), PER_SKILL), seed=1)
    return [{**pool[n % len(pool)], "row": n} for n in range(prompts)]


def step_cost(policy: ba.Policy | None, steps: int, prompts: int) -> tuple[float, float, float]:
    """Medians over the steps: milliseconds of the callback and of the whole step, and their ratio."""
    clock = Steps()

    def attach(trainer: Any) -> None:
        trainer.add_callback(clock)
        if policy is not None:
            trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, prompt_id="row"))

    run = train(
        attach, steps=steps + WARM, eval_every=steps + WARM, seed=1, threads=1, progress=False, rows=rows(prompts)
    )
    logs = [entry for entry in run.trainer.state.log_history if "loss" in entry][WARM:]
    own = [1000 * entry.get("budgetalloc/seconds", 0.0) for entry in logs]
    whole = clock.milliseconds[WARM:]
    ratio = statistics.median(o / w for o, w in zip(own, whole, strict=True))
    return statistics.median(own), statistics.median(whole), ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pools", type=int, nargs="+", default=[2_080, 100_100, 1_001_000])
    options = parser.parse_args()
    print(f"{'prompts':>10} {'policy':<15}{'callback ms':>12}{'step ms':>10}{'share':>8}   (256 rollouts a step)")
    for prompts in options.pools:
        small = prompts < 10_000
        policies = {"plain TRL": None, "adaptive": ba.adaptive(), "adaptive, then": ba.adaptive()}
        if small:
            policies |= {"uniform": ba.uniform(), "knapsack": ba.knapsack()}
        for name, policy in policies.items():
            may = (lambda *_: False) if name == "adaptive, then" else callback.can_prefetch
            with mock.patch.object(callback, "can_prefetch", may):
                row = step_cost(policy, options.steps if small else max(options.steps // 5, 4), prompts)
            print("{:>10,} {:<15}{:>12.2f}{:>10.1f}{:>8.2%}".format(prompts, name, *row), flush=True)


if __name__ == "__main__":
    main()
