"""Trains the tiny model with a policy, by TRL's GRPOTrainer, and measures it every ten steps."""

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.heldout import evaluate
from budgetalloc.policies import Policy
from budgetalloc.trl import AdaptiveGRPOCallback

__all__ = ["Point", "train"]

_EVERY = 10  # steps between two points


class Point(NamedTuple):
    """The run after some steps; shares are since the last point, and None at the start."""

    step: int
    success: float  # the mean probability of the right answer to held-out prompts
    mixed_groups: float | None  # the share of groups with unequal rewards
    mixed_rollouts: float | None  # the share of rollouts in such groups
    rollouts: int
    tokens: int
    seconds: float  # in training


class _Curve(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Counts every reward, and measures the model."""

    def __init__(self, seed: int) -> None:
        self.points: list[Point] = []
        self.trainer: Any = None
        self._reward, self._held_out = skills.make_reward(seed), skills.held_out()
        self._groups: dict[tuple[int, int], Counter[float]] = {}  # (step, prompt id): rewards
        self._rollouts = self._tokens = 0
        self._seconds = 0.0

    def reward(self, prompt_id: list[int], **columns: Any) -> list[float]:
        """The language's reward, counted."""
        rewards_R = self._reward(prompt_id=prompt_id, **columns)
        step = int(columns["trainer_state"].global_step)
        for i, value in zip(prompt_id, rewards_R, strict=True):
            self._groups.setdefault((step, i), Counter())[value] += 1
        self._rollouts += len(rewards_R)
        self._tokens += sum(map(len, columns["completion_ids"]))
        return rewards_R

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar = tqdm(total=state.max_steps, desc="GRPO", unit="step")
        self._resumed = time.perf_counter()
        self._measure(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.update(1)
        if state.global_step % _EVERY == 0 or state.global_step == state.max_steps:
            self._measure(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.close()

    def _measure(self, step: int) -> None:
        self._seconds += time.perf_counter() - self._resumed
        model, tokenizer = self.trainer.model, self.trainer.processing_class
        success = evaluate(model, tokenizer, self._held_out).expected
        sizes = [group.total() for group in self._groups.values()]
        mixed = [group.total() for group in self._groups.values() if len(group) > 1]
        self.points.append(
            Point(
                step,
                success,
                len(mixed) / len(sizes) if sizes else None,
                sum(mixed) / sum(sizes) if sizes else None,
                self._rollouts,
                self._tokens,
                round(self._seconds, 3),
            )
        )
        self._groups.clear()
        self._bar.set_postfix(success=f"{success:.3f}")
        self._resumed = time.perf_counter()


def train(
    policy: Policy, options: dict[str, Any], *, steps: int, learning_rate: float, seed: int
) -> list[Point]:
    """The learning curve of a run with 32 prompts x 8 rollouts a step. The options are those of
    `AdaptiveGRPOCallback`."""
    torch.set_num_threads(1)
    curve = _Curve(seed)
    with tempfile.TemporaryDirectory() as scratch:
        curve.trainer = trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(skills.WEIGHTS, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(skills.WEIGHTS),
            reward_funcs=curve.reward,
            train_dataset=Dataset.from_list(skills.pool(seed=seed)),
            args=GRPOConfig(
                output_dir=str(Path(scratch)),
                max_steps=steps,
                learning_rate=learning_rate,
                lr_scheduler_type="constant",
                per_device_train_batch_size=256,
                num_generations=8,
                max_completion_length=skills.ANSWER_LENGTH + 1,  # and the end of text
                temperature=1.0,
                beta=0.0,
                use_cpu=not torch.cuda.is_available(),
                bf16=False,  # 340 k parameters need no savings
                gradient_checkpointing=False,
                seed=seed,
                logging_steps=1,
                disable_tqdm=True,
                report_to=[],
                save_strategy="no",
            ),
        )
        trainer.remove_callback(PrinterCallback)  # it prints every log line
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, **options))
        trainer.add_callback(curve)
        trainer.train()
    return curve.points
