"""Rewards for the right answer and for the format, with TRL. Beliefs use the answer, the gradient uses both.

python gsm8k.py                                        # GSM8K, Qwen2.5-0.5B-Instruct
python gsm8k.py --model FOLDER --data train.jsonl      # columns `question` and `answer`, such as "... #### 42" or "42"
"""

import argparse
import re
from typing import Any

import torch
from datasets import Dataset, load_dataset
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

ASK = "Think step by step, then write the number alone between <answer> and </answer>."
ANSWER = re.compile(r"<answer>\s*([^<>]*?)\s*</answer>\s*$")


def said(completions: list[Any]) -> list[str]:
    """The text of each completion, which is a string or a conversation."""
    return [c if isinstance(c, str) else c[-1]["content"] for c in completions]


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """1 if the number between the marks is right, else 0. This is success."""
    marked = [ANSWER.search(text) for text in said(completions)]
    numbers = [match and match[1].replace(",", "") for match in marked]
    return [float(number == right) for number, right in zip(numbers, answer, strict=True)]


def formatted(completions: list[Any], **_: Any) -> list[float]:
    """1 if the completion ends with an answer between the marks. This is soon nearly always so; it is not success."""
    return [float(bool(ANSWER.search(text))) for text in said(completions)]


def rows(data: Dataset) -> Dataset:
    """Prompts as conversations; the number after "####" is the answer."""

    def row(question: str, answer: str) -> dict[str, Any]:
        prompt = [{"role": "user", "content": f"{question}\n{ASK}"}]
        return {"prompt": prompt, "answer": answer.rpartition("####")[2].strip().replace(",", "")}

    return data.map(row, input_columns=["question", "answer"], remove_columns=data.column_names)


def build(model: Any, data: Dataset, *, ledger: str = "runs/gsm8k/ledger.jsonl", **more: Any) -> GRPOTrainer:
    """The trainer with the callback attached; `more` are arguments of GRPOConfig and `processing_class`."""
    given = {"processing_class": more.pop("processing_class", None)}
    settings = {
        "output_dir": "runs/gsm8k",
        "per_device_train_batch_size": 64,  # rollouts a step
        "num_generations": 8,  # the average count of a prompt
        "max_completion_length": 512,
        "learning_rate": 1e-6,
        "reward_weights": [1.0, 0.2],
        "use_cpu": not torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
        "report_to": "none",
    }
    args = GRPOConfig(**settings | more)
    trainer = GRPOTrainer(model=model, reward_funcs=[correct, formatted], args=args, train_dataset=data, **given)
    # Without success=, the 0/1 reward function of the largest weight is success: here the same function.
    trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.adaptive(), success="correct", ledger=ledger))
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--data", help="a JSON-lines file instead of GSM8K")
    parser.add_argument("--steps", type=int, default=200)
    asked = parser.parse_args()
    source = ("json", None, asked.data) if asked.data else ("openai/gsm8k", "main", None)
    loaded = load_dataset(source[0], source[1], data_files=source[2], split="train")
    trainer = build(asked.model, rows(loaded), max_steps=asked.steps)
    trainer.train()
    trainer.save_model()
