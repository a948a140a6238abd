"""A reward model, with TRL. Its scores have any range, which is mapped to success from 0 to 1.

python reward_model.py train.jsonl --range -5 5       # a column `prompt`; without --range it is learned from the scores
"""

import argparse
from typing import Any

import torch
from datasets import Dataset, load_dataset
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
JUDGE = "OpenAssistant/reward-model-deberta-v3-large-v2"  # a name on the hub or a folder: one score for a text


def build(
    model: Any,
    judge: Any,
    data: Dataset,
    *,
    reward_range: tuple[float, float] | None = None,
    ledger: str = "runs/reward_model/ledger.jsonl",
    **more: Any,
) -> GRPOTrainer:
    """The trainer with the callback attached; `more` are arguments of GRPOConfig and the two `..._class(es)` of TRL.

    Args:
        reward_range: The scores that mean failure and success; None learns them. Training uses every score unchanged.
            Beliefs clip a score outside the range, which `budgetalloc/rewards_clipped` counts. If the range is far too
            wide, all prompts look alike, and a warning is logged.
    """
    given = {name: more.pop(name, None) for name in ("processing_class", "reward_processing_classes")}
    settings = {
        "output_dir": "runs/reward_model",
        "per_device_train_batch_size": 64,
        "num_generations": 8,
        "max_completion_length": 256,
        "learning_rate": 1e-6,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
        "report_to": "none",
    }
    args = GRPOConfig(**settings | more)
    trainer = GRPOTrainer(model=model, reward_funcs=judge, args=args, train_dataset=data, **given)
    # A belief is about the mean score of a prompt, mapped to [0, 1] by the range.
    trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.adaptive(), reward_range=reward_range, ledger=ledger))
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a JSON-lines file")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--judge", default=JUDGE)
    parser.add_argument("--range", nargs=2, type=float, metavar=("LOW", "HIGH"))
    parser.add_argument("--steps", type=int, default=200)
    asked = parser.parse_args()
    loaded = load_dataset("json", data_files=asked.data, split="train")
    bounds = tuple(asked.range) if asked.range else None
    trainer = build(asked.model, asked.judge, loaded, reward_range=bounds, max_steps=asked.steps)
    trainer.train()
    trainer.save_model()
