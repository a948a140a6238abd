"""Trains a model of yours on a dataset of yours with TRL's GRPOTrainer and adaptive rollout counts.

python integrations/trl/train.py configs/trl_adaptive.yaml
python integrations/trl/train.py configs/trl_adaptive.yaml --resume
"""

import argparse
from pathlib import Path
from typing import Any

import yaml
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

POLICIES = {"adaptive": ba.adaptive, "thompson": ba.thompson, "knapsack": ba.knapsack, "uniform": ba.uniform}


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """1 where the completion ends with the answer. Put your own verifier here; keep rewards in [0, 1]."""
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(text.strip().endswith(right)) for text, right in zip(texts, answer, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="a YAML file such as configs/trl_adaptive.yaml")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in output_dir")
    args = parser.parse_args()
    config = yaml.safe_load(args.config.read_text())

    local = Path(config["dataset"]).exists()
    dataset = (
        load_dataset("json", data_files=config["dataset"], split="train")
        if local
        else load_dataset(config["dataset"], split="train")
    )
    trainer = GRPOTrainer(
        model=config["model"], reward_funcs=correct, args=GRPOConfig(**config["grpo"]), train_dataset=dataset
    )
    policy = POLICIES[config["policy"]](**config.get("policy_options", {}))
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, **config.get("callback", {})))
    trainer.train(resume_from_checkpoint=args.resume or None)
    trainer.save_model()


if __name__ == "__main__":
    main()
