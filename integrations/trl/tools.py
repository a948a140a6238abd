"""A multi-turn environment with a tool, with TRL: the model finds a number by asking "higher or lower".

python tools.py --model Qwen/Qwen3-0.6B --steps 100         # a model whose chat template knows tools
"""

import argparse
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback


class HigherOrLower:
    """The environment of one rollout. `reset` gets the columns of its row; the public methods are the model's tools."""

    def reset(self, secret: int, most: int, **_: Any) -> None:
        self.secret, self.most, self.solved = secret, most, False

    def guess(self, number: int) -> str:
        """
        Guesses the secret number.

        Args:
            number: The guess.

        Returns:
            Whether the secret is higher or lower, or that it was found.
        """
        self.solved |= number == self.secret
        return "found" if number == self.secret else "higher" if self.secret > number else "lower"

    def get_reward(self) -> float:
        """1 if the number was found, else 0. TRL uses this method as a reward function."""
        return float(self.solved)


def games(count: int) -> Dataset:
    """Games that differ in the range of the secret. Games can have the same text, so `prompt_id` identifies them."""
    rows = []
    for game in range(count):
        most = 2 ** (2 + game % 6)
        text = f"I think of a whole number from 1 to {most}. Find it with the tool."
        row = {"prompt": [{"role": "user", "content": text}], "most": most, "secret": 1 + 7 * game % most}
        rows.append(row | {"prompt_id": game})
    return Dataset.from_list(rows)


def build(model: Any, data: Dataset, *, ledger: str = "runs/tools/ledger.jsonl", **more: Any) -> GRPOTrainer:
    """The trainer with the callback attached; `more` are arguments of GRPOConfig and `processing_class`."""
    given = {"processing_class": more.pop("processing_class", None)}
    settings = {
        "output_dir": "runs/tools",
        "per_device_train_batch_size": 32,
        "num_generations": 8,
        "max_completion_length": 1024,  # of all turns of a rollout
        "max_tool_calling_iterations": 8,
        "learning_rate": 1e-6,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
        "report_to": "none",
    }
    args = GRPOConfig(**settings | more)
    trainer = GRPOTrainer(
        model=model, reward_funcs=[], environment_factory=HigherOrLower, args=args, train_dataset=data, **given
    )
    # The budget counts rollouts, whatever their number of turns. A policy that decides in rounds would wait for the
    # slowest rollout of each round; adaptive() decides once a step.
    trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.adaptive(), ledger=ledger))
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--steps", type=int, default=100)
    asked = parser.parse_args()
    trainer = build(asked.model, games(960), max_steps=asked.steps)
    trainer.train()
    trainer.save_model()
