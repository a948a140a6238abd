"""A long run on the tiny testbed: memory stays flat, and every step spends its budget exactly.

    python benchmarks/soak.py [--steps 2000] [--growth 16]

Real GRPO by TRL's own trainer with the recommended policy over the whole pool, a ledger, and a checkpoint now and then.
The budget is counted in the ledger; memory is the resident set of the process. Stops with 1 if a step spent more or
less than its budget, or if memory grew by more than `--growth` MB after the first tenth of the steps.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc.cli.testbed import skills
from budgetalloc.trl import AdaptiveGRPOCallback

sys.path.insert(0, str(Path(__file__).parent / "learning"))
from train import train

PROMPTS, GENERATIONS = 4, 8


class Memory(TrainerCallback):
    """Megabytes in use after a tenth, a half and all of the steps."""

    def __init__(self, steps: int) -> None:
        self.at = (max(1, steps // 10), max(1, steps // 2), steps)
        self.used: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step in self.at:
            self.used.append(psutil.Process().memory_info().rss / 2**20)
            print(f"step {state.global_step:>5,}: {self.used[-1]:8.1f} MB", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--growth", type=float, default=16.0)
    steps, growth = (given := parser.parse_args()).steps, given.growth
    memory = Memory(steps)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.jsonl"

        def attach(trainer: Any) -> None:
            trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.adaptive(), ledger=ledger))
            trainer.add_callback(memory)

        train(
            attach,
            steps=steps,
            prompts=PROMPTS,
            generations=GENERATIONS,
            eval_every=max(1, steps // 20),  # the testbed's curve keeps the groups between two of its points
            held_out_rows=skills.held_out(1),
            threads=1,
            progress=False,
            output_dir=Path(folder) / "run",
            logging_steps=max(1, steps // 20),  # transformers keeps every line that it logs
            save_strategy="steps",
            save_steps=max(1, steps // 8),
            save_total_limit=1,
        )
        log = ba.Ledger.read(ledger)
    spent = np.bincount(log.frame.step, minlength=steps)
    wrong = np.flatnonzero(spent != PROMPTS * GENERATIONS)
    grown = memory.used[-1] - memory.used[0]
    exact = f"{steps - len(wrong):,} of {len(spent):,} steps"
    print(f"budget: {PROMPTS * GENERATIONS} rollouts a step, spent exactly in {exact}")
    print(f"memory: grew by {grown:.1f} MB from step {memory.at[0]:,} to {steps:,} (allowed: {growth:.0f})")
    return int(len(wrong) > 0 or len(spent) != steps or grown > growth)


if __name__ == "__main__":
    raise SystemExit(main())
