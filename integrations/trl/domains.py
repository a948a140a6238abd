"""Several domains with quotas, with TRL: edit QUOTAS and VERIFIERS for the domains of your data.

The policy chooses prompts within each domain's share of the rollouts.

python domains.py train.jsonl --model FOLDER --steps 200        # columns `prompt`, `answer` and `domain`
python domains.py train.jsonl --mixture learn                   # shares by what a rollout teaches, within the quotas
"""

import argparse
from collections.abc import Callable
from typing import Any, get_args

import torch
from datasets import Dataset, load_dataset
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.contrib.mixture import Rule
from budgetalloc.trl import AdaptiveGRPOCallback

QUOTAS = {"math": (0.4, 0.6), "code": (0.2, 1.0)}  # lowest and highest share of each step's rollouts; the rest is free


def ends_with(text: str, answer: str) -> bool:
    return text.strip().endswith(answer)


def contains(text: str, answer: str) -> bool:
    return answer in text


VERIFIERS: dict[str, Callable[[str, str], bool]] = {"math": ends_with, "code": contains}  # put your own here


def correct(completions: list[Any], answer: list[str], domain: list[str], **_: Any) -> list[float]:
    """1 if the verifier of the row's domain accepts the completion, else 0; columns of the dataset are arguments."""
    if unknown := set(domain) - VERIFIERS.keys():
        raise ValueError(f"The domains {sorted(unknown)} have no verifier: add one for each to VERIFIERS.")
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(VERIFIERS[name](text, right)) for text, right, name in zip(texts, answer, domain, strict=True)]


def build(
    model: Any,
    data: Dataset,
    *,
    mixture: Rule | None = None,
    ledger: str = "runs/domains/ledger.jsonl",
    **more: Any,
) -> GRPOTrainer:
    """The trainer with the callback attached; `more` are arguments of GRPOConfig and `processing_class`."""
    given = {"processing_class": more.pop("processing_class", None)}
    settings = {
        "output_dir": "runs/domains",
        "per_device_train_batch_size": 64,
        "num_generations": 8,
        "max_completion_length": 512,
        "learning_rate": 1e-6,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
        "report_to": "none",
    }
    args = GRPOConfig(**settings | more)
    trainer = GRPOTrainer(model=model, reward_funcs=correct, args=args, train_dataset=data, **given)
    shares: dict[str, Any] = {"domain": "domain", "quotas": QUOTAS, "mixture": mixture}
    callback = AdaptiveGRPOCallback(trainer, ba.adaptive(), ledger=ledger, **shares)
    trainer.add_callback(callback)  # the log then has budgetalloc/share/math and budgetalloc/share/code
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a JSON-lines file")
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--mixture", choices=get_args(Rule), help="learn the shares, within QUOTAS")
    asked = parser.parse_args()
    loaded = load_dataset("json", data_files=asked.data, split="train")
    trainer = build(asked.model, loaded, mixture=asked.mixture, max_steps=asked.steps)
    trainer.train()
    trainer.save_model()
