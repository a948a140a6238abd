"""Trains the tiny model with a policy, by TRL's GRPOTrainer, and measures it every ten steps."""

import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.heldout import evaluate
from budgetalloc.policies import Policy
from budgetalloc.trl import AdaptiveGRPOCallback

_EVERY = 10  # steps between two points


class Point(NamedTuple):
    """The run after some steps."""

    step: int
    success: float  # the mean probability of the right answer to held-out prompts
    rollouts: int


class _Curve(TrainerCallback):  # type: ignore[misc, unused-ignore]
    def __init__(self, seed: int) -> None:
        self.points: list[Point] = []
        self.trainer: Any = None
        self._reward, self._held_out = skills.make_reward(seed), skills.held_out()
        self._rollouts = 0

    def reward(self, **columns: Any) -> list[float]:
        """The language's reward, counted."""
        rewards_R = self._reward(**columns)
        self._rollouts += len(rewards_R)
        return rewards_R

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._measure(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % _EVERY == 0 or state.global_step == state.max_steps:
            self._measure(state.global_step)

    def _measure(self, step: int) -> None:
        model, tokenizer = self.trainer.model, self.trainer.processing_class
        success = evaluate(model, tokenizer, self._held_out).expected
        self.points.append(Point(step, success, self._rollouts))


def train(
    policy: Policy,
    options: dict[str, Any],
    *,
    steps: int,
    learning_rate: float,
    group: int,
    seed: int,
) -> list[Point]:
    """The learning curve of a run with 256 rollouts a step. The options are those of
    `AdaptiveGRPOCallback`; `group` is the trainer's group size."""
    torch.set_num_threads(1)
    disable_progress_bar()  # of the weights
    curve = _Curve(seed)
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers renames an argument
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
                num_generations=group,
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
