"""The callback's share of a training step on the tiny test-bed, compared with plain TRL in one run; for idle cores.

    python benchmarks/callback_cost.py [--steps 60] [--pools 2080 100100 1001000] [--processes 1 2 4]

The callback's own time is what the metric budgetalloc/seconds covers: how long the trainer waits while the callback
decides, learns and logs, without TRL's generation. Of several processes it is the slowest one's. *Processor* is the
processor time in it, which on busy cores is the better figure. A pool is the test-bed's, repeated under other names
where it is too small; `benchmarks/scale_of_pool.py` has the processor times of the decisions alone. Several processes
share the 256 rollouts of a step.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc.cli.testbed import skills
from budgetalloc.trl import AdaptiveGRPOCallback, callback
from budgetalloc.trl import step as one_step

sys.path.insert(0, str(Path(__file__).parent / "learning"))
from train import train

ROLLOUTS = 256  # a step, of all processes
PER_SKILL = 3_850
POLICIES = {
    "plain TRL": None,
    "adaptive": ba.adaptive,
    "uniform": ba.uniform,
    "knapsack": ba.knapsack,
}
SMALL_ONLY = ("uniform", "knapsack")
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


@contextmanager
def processor_times() -> Iterator[list[float]]:
    """The processor time of this thread in each step of the callback, without TRL's generation, in milliseconds."""
    spent: list[float] = []
    generation, whole = one_step.generate, callback.run_step

    def generate(*given: Any) -> Any:
        spent[-1] += 1000 * time.thread_time()
        made = generation(*given)
        spent[-1] -= 1000 * time.thread_time()
        return made

    def run_step(*given: Any) -> Any:
        spent.append(-1000 * time.thread_time())
        made = whole(*given)
        spent[-1] += 1000 * time.thread_time()
        return made

    with mock.patch.object(one_step, "generate", generate), mock.patch.object(callback, "run_step", run_step):
        yield spent


def step_cost(name: str, steps: int, prompts: int, processes: int) -> tuple[float, float, float]:
    """Medians over the steps of this process, in milliseconds: the callback, its processor time, and the whole step."""
    clock = Steps()

    def attach(trainer: Any) -> None:
        trainer.add_callback(clock)
        if (policy := POLICIES[name]) is not None:
            trainer.add_callback(AdaptiveGRPOCallback(trainer, policy(), prompt_id="row"))

    every = {"steps": steps + WARM, "eval_every": steps + WARM, "held_out_rows": skills.held_out(1)}
    shares = {"per_device_train_batch_size": ROLLOUTS // processes}
    with processor_times() as spent:
        run = train(attach, seed=1, threads=1, progress=False, rows=rows(prompts), **every, **shares)
    logs = [entry for entry in run.trainer.state.log_history if "loss" in entry][WARM:]
    own = [1000 * entry.get("budgetalloc/seconds", 0.0) for entry in logs]
    median = statistics.median
    return median(own), median(spent[WARM:] or [0.0]), median(clock.milliseconds[WARM:])


def slowest(name: str, steps: int, prompts: int, processes: int) -> tuple[float, ...]:
    """The largest of each of the times of all processes, which are forked from this one."""
    if processes == 1:
        return step_cost(name, steps, prompts, processes)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id="callback_cost",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        start_method="fork",
    )
    found = elastic_launch(config, step_cost)(name, steps, prompts, processes)
    return tuple(map(max, zip(*found.values(), strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pools", type=int, nargs="+", default=[2_080, 100_100, 1_001_000])
    parser.add_argument("--processes", type=int, nargs="+", default=[1])
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=list(POLICIES))
    options = parser.parse_args()
    gc.freeze()  # what is imported: each training collects garbage
    print(f"{'':>10}{'':>11}{'':<17}{'callback':>11}{'processor':>11}{'step':>9}{'of the':>8}{'of':>8}")
    print(f"{'prompts':>10}{'processes':>11}  {'policy':<15}{'ms':>11}{'ms':>11}{'ms':>9}{'step':>8}{'0.25 s':>8}")
    for prompts in options.pools:
        small = prompts < 10_000
        steps = options.steps if small else max(options.steps // 5, 4)
        for processes in options.processes:
            for name in options.policies if small else [x for x in options.policies if x not in SMALL_ONLY]:
                own, spent, whole = slowest(name, steps, prompts, processes)
                times = f"{own:>11.2f}{spent:>11.2f}{whole:>9.1f}{own / whole:>8.2%}{own / 250:>8.2%}"
                print(f"{prompts:>10,}{processes:>11}  {name:<15}{times}", flush=True)


if __name__ == "__main__":
    main()
