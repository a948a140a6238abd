"""A run with uniform groups, which another policy watches, with TRL: edit `correct` for your data.

python shadow.py train.jsonl                           # columns `prompt` and `answer`
python shadow.py train.jsonl --watch thompson --steps 100
"""

import argparse
from typing import Any

import torch
from datasets import Dataset, load_dataset
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """1 if the completion ends with the answer, else 0."""
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(text.strip().endswith(right)) for text, right in zip(texts, answer, strict=True)]


def build(
    model: Any, data: Dataset, *, watch: str = "adaptive", ledger: str = "runs/shadow/ledger.jsonl", **more: Any
) -> GRPOTrainer:
    """The trainer with the callback attached; `more` are arguments of GRPOConfig and `processing_class`."""
    given = {"processing_class": more.pop("processing_class", None)}
    settings = {
        "output_dir": "runs/shadow",
        "per_device_train_batch_size": 64,
        "num_generations": 8,
        "max_completion_length": 256,
        "learning_rate": 1e-6,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
        "report_to": "none",
    }
    args = GRPOConfig(**settings | more)
    trainer = GRPOTrainer(model=model, reward_funcs=correct, args=args, train_dataset=data, **given)
    # uniform() leaves TRL's batches and advantages as they are, and the shadow changes nothing of the run.
    trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.uniform(), shadow=watch, ledger=ledger))
    return trainer


def verdict(history: list[dict[str, float]]) -> list[str]:
    """What the last tenth of a trainer's log says about the shadow, one sentence each.

    >>> logged = {"advantage/frac_nonzero": 0.4, "shadow/advantage/frac_nonzero": 0.9, "shadow/overlap": 0.1}
    >>> logged |= {"shadow/variance_predicted": 0.2, "shadow/variance_predicted_run": 0.1}
    >>> logged |= {"brier": 0.2, "brier_pool_mean": 0.25, "shadow/brier": 0.2, "shadow/seconds": 0.02}
    >>> verdict([{f"budgetalloc/{key}": value for key, value in logged.items()}])[0]
    'Rollouts with an advantage: 40% of the run, 90% with the shadow.'
    """
    logs = [entry for entry in history if "budgetalloc/shadow/seconds" in entry]
    last = logs[-max(len(logs) // 10, 1) :]

    def mean(name: str) -> float:
        known = [entry[f"budgetalloc/{name}"] for entry in last if f"budgetalloc/{name}" in entry]
        return sum(known) / len(known) if known else float("nan")

    own, other = mean("shadow/variance_predicted_run"), mean("shadow/variance_predicted")
    return [
        f"Rollouts with an advantage: {mean('advantage/frac_nonzero'):.0%} of the run, "
        f"{mean('shadow/advantage/frac_nonzero'):.0%} with the shadow.",
        f"Its allocation and the run's have {mean('shadow/overlap'):.0%} in common.",
        f"It expects p (1-p) = {other:.3f} of its own choice, and {own:.3f} of the run's.",
        f"Its Brier score is {mean('shadow/brier'):.3f}; one rate for all prompts has {mean('brier_pool_mean'):.3f}. "
        "If it is not lower, its choice is a guess so far.",
        f"It took {mean('shadow/seconds'):.3f} seconds a step.",
        "None of this is accuracy: compare held-out accuracy of two runs before you switch.",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a JSON-lines file")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--watch", default="adaptive", metavar="NAME", help="a name of `budgetalloc methods`")
    parser.add_argument("--steps", type=int, default=100)
    asked = parser.parse_args()
    loaded = load_dataset("json", data_files=asked.data, split="train")
    trainer = build(asked.model, loaded, watch=asked.watch, max_steps=asked.steps)
    trainer.train()
    print(*verdict(trainer.state.log_history), sep="\n")
