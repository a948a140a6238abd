"""An agent with TRL whose rollouts take 1 to 10 turns: costs in tokens, turns and tool seconds, and a budget in them.

python agent.py --model Qwen/Qwen3-0.6B --steps 100                          # cheap tasks get more rollouts
python agent.py --model Qwen/Qwen3-0.6B --steps 100 --cost-per-step 12000    # and a step costs this much on average
"""

import argparse
import time
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

# What one unit costs, in tokens: a turn waits for the inference server, and a second of the tool for a sandbox.
PRICES = {"tokens": 1.0, "turns": 50.0, "tool_seconds": 200.0}


class BoxChain:
    """The environment of one rollout. Each box names the next one, and the last one holds the treasure.

    `turns` and `tool_seconds` are what the rollout costs. The callback reads attributes by the names in `PRICES`.
    """

    def reset(self, boxes: list[int], **_: Any) -> None:
        self.boxes, self.opened = boxes, 0
        self.turns, self.tool_seconds = 1, 0.0  # the answer is a turn, also without a tool

    def open_box(self, number: int) -> str:
        """
        Opens a box.

        Args:
            number: The number of the box.

        Returns:
            The box to open next, the treasure, or that the box is empty.
        """
        started = time.perf_counter()
        right = self.opened < len(self.boxes) and number == self.boxes[self.opened]
        self.opened += right
        found = "treasure" if self.opened == len(self.boxes) else f"box {self.boxes[self.opened]}" if right else "empty"
        self.turns += 1
        self.tool_seconds += time.perf_counter() - started
        return found

    def get_reward(self) -> float:
        """1 if the treasure was found, else 0. TRL uses this method as a reward function."""
        return float(self.opened == len(self.boxes))


def chains(count: int, lengths: tuple[int, ...] = (1, 3, 9)) -> Dataset:
    """Tasks of these numbers of boxes in turn, so that a solution takes 2 to 10 turns, and a wrong answer one."""
    rows = []
    for task in range(count):
        boxes = [10 + (task + 17 * at) % 90 for at in range(lengths[task % len(lengths)])]
        text = f"Find the treasure. Begin with box {boxes[0]}"
        rows.append({"prompt": [{"role": "user", "content": text}], "boxes": boxes, "prompt_id": task})
    return Dataset.from_list(rows)


def build(
    model: Any,
    data: Dataset,
    *,
    cost_per_step: float | None = None,
    ledger: str = "runs/agent/ledger.jsonl",
    **more: Any,
) -> GRPOTrainer:
    """The trainer with the callback attached; `more` are arguments of GRPOConfig and `processing_class`."""
    given = {"processing_class": more.pop("processing_class", None)}
    settings = {
        "output_dir": "runs/agent",
        "per_device_train_batch_size": 32,
        "num_generations": 8,
        "max_completion_length": 2048,  # of all turns of a rollout
        "max_tool_calling_iterations": 12,
        "learning_rate": 1e-6,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
        "report_to": "none",
    }
    args = GRPOConfig(**settings | more)
    trainer = GRPOTrainer(
        model=model, reward_funcs=[], environment_factory=BoxChain, args=args, train_dataset=data, **given
    )
    # Without cost_per_step, rollouts only move to cheaper tasks. With it, a price keeps the mean cost of a step.
    trainer.add_callback(
        AdaptiveGRPOCallback(trainer, ba.adaptive(), cost=PRICES, cost_per_step=cost_per_step, ledger=ledger)
    )
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--cost-per-step", type=float)
    asked = parser.parse_args()
    trainer = build(asked.model, chains(960), cost_per_step=asked.cost_per_step, max_steps=asked.steps)
    trainer.train()
    trainer.save_model()
