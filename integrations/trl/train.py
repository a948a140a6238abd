"""Trains your model on your data with TRL: edit `correct` here, and `model` and `dataset` in the YAML file.

python integrations/trl/train.py configs/trl_adaptive.yaml
python integrations/trl/train.py configs/trl_adaptive.yaml --resume
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from budgetalloc.cli.config import Config
from budgetalloc.errors import BudgetallocError, InputError, check_known
from budgetalloc.trl import AdaptiveGRPOCallback


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """1 if the completion ends with the answer, else 0. Put your own verifier here; keep rewards in [0, 1]."""
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(text.strip().endswith(right)) for text, right in zip(texts, answer, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="a YAML file such as configs/trl_adaptive.yaml")
    parser.add_argument("--resume", action="store_true", help="resume from the newest checkpoint in output_dir")
    args = parser.parse_args()
    try:
        trainer = build(Config.read(args.config))
    except (BudgetallocError, OSError) as error:
        sys.exit(f"train.py: {error}")
    trainer.train(resume_from_checkpoint=args.resume or None)
    trainer.save_model()


def build(config: Config) -> GRPOTrainer:
    """The trainer with the callback attached, as the file says."""
    if config.model is None or config.dataset is None:
        raise InputError(f"{config.file}: set `model:` and `dataset:`, the model and the data to train with.")
    for key in config.grpo:
        check_known(key, [field.name for field in fields(GRPOConfig)], f"{config.file}: grpo.{key}")
    gpu = torch.cuda.is_available()
    arguments = GRPOConfig(**{"use_cpu": not gpu, "bf16": gpu, **config.grpo})
    local = Path(config.dataset).exists()
    dataset = (
        load_dataset("json", data_files=config.dataset, split="train")
        if local
        else load_dataset(config.dataset, split="train")
    )
    trainer = GRPOTrainer(model=config.model, reward_funcs=correct, args=arguments, train_dataset=dataset)
    given = config.callback_arguments(arguments.generation_batch_size)
    trainer.add_callback(AdaptiveGRPOCallback(trainer, config.build(), **given))
    return trainer


if __name__ == "__main__":
    main()
