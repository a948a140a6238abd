"""Runs TRL's GRPOTrainer once on the testbed, and records the learning curve.

    run = train(seed=0)                                     # uniform: 32 prompts x 8 rollouts a
    step run = train(seed=0, language=growing)                   # another task language, see
    `language` run = train(seed=0, attach=lambda t: t.add_callback(AdaptiveGRPOCallback(t, policy)))
    run.curve[-1].success

Measuring does not change the run: the reward function counts rewards, and the evaluation has its
own random generator.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from transformers.utils import logging as hf_logging
from trl import GRPOConfig, GRPOTrainer

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.curve import CurvePoint, Recorder
from budgetalloc.cli.testbed.language import Grading, Language

__all__ = ["Run", "train"]


@dataclass(frozen=True)
class Run:
    """The result of `train`."""

    curve: tuple[CurvePoint, ...]
    losses: tuple[float, ...]  # TRL's logged loss, one per step
    trainer: Any
    start_P: tuple[float, ...] = ()  # before training: `heldout.Success.right_P`
    end_P: tuple[float, ...] = ()  # the same after training

    def mean_success(self) -> float:
        """Mean success over the steps of the run, by the trapezoid rule. A run that learns early
        has a high mean."""
        pairs = list(zip(self.curve, self.curve[1:], strict=False))
        if not pairs:
            return self.curve[0].success
        area = sum((b.step - a.step) * (a.success + b.success) / 2 for a, b in pairs)
        return area / (self.curve[-1].step - self.curve[0].step)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the progress bar of loading the model, and a FutureWarning of TRL and transformers."""
    bars = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=".*gradient_checkpointing.*", category=FutureWarning
            )
            yield
    finally:
        if bars:
            hf_logging.enable_progress_bar()


def train(
    attach: Callable[[Any], object] | None = None,
    *,
    steps: int = 150,
    max_rollouts: int | None = None,
    learning_rate: float = 1e-4,
    seed: int = 0,
    prompts: int = 32,
    generations: int = 8,
    eval_every: int = 10,
    eval_samples: int = 4,
    pool_per_skill: int | None = None,
    held_out_per_skill: int | None = None,
    rows: Sequence[dict[str, Any]] | None = None,
    held_out_rows: Sequence[dict[str, Any]] | None = None,
    language: Language = skills,
    grading: Grading | None = None,
    weights: str | Path | None = None,
    output_dir: str | Path | None = None,
    threads: int | None = None,
    progress: bool = True,
    **overrides: Any,
) -> Run:
    """Runs GRPO in one process for `steps` steps of `prompts` x `generations` rollouts, on a GPU if
    there is one.

    Args:
        attach: Called with the trainer before training starts.
        max_rollouts: Ends the run after the step that reaches it. Some policies generate more than
            they train on.
        seed: Sets the pool, its order, the sampling and the traps' coins, but not the held-out
            prompts.
        language: The task language: weights, reward and rows.
        rows, held_out_rows: Rows of the language that replace its usual ones.
        grading: Replaces the reward in training, but not in the evaluation.
        threads: torch's number of CPU threads. Use 1 if several runs share the machine.
        overrides: Arguments of GRPOConfig.
    """
    if eval_every < 1:
        raise ValueError(
            f"train(eval_every={eval_every}): use 10, or {steps} for the first and last point only."
        )
    weights = weights or language.WEIGHTS
    if not (Path(weights) / "config.json").is_file():
        raise FileNotFoundError(
            f"train(weights={str(weights)!r}): the folder has no model. Make one with "
            f"`python benchmarks/learning/pretrain.py --out {weights}`, which takes --language or "
            "--size."
        )
    if threads is not None:
        torch.set_num_threads(threads)
    with _quiet(), tempfile.TemporaryDirectory() as scratch:
        settings: dict[str, Any] = {
            "output_dir": str(output_dir or scratch),
            "max_steps": steps,
            "learning_rate": learning_rate,
            # so the first steps do not depend on the number of steps
            "lr_scheduler_type": "constant",
            "per_device_train_batch_size": prompts * generations,
            "num_generations": generations,
            "max_completion_length": language.ANSWER_LENGTH + 1,  # and the end of text
            "temperature": 1.0,
            "beta": 0.0,
            "use_cpu": not torch.cuda.is_available(),
            "bf16": False,  # 340 k parameters need no savings
            "gradient_checkpointing": False,
            "seed": seed,
            "logging_steps": 1,
            "disable_tqdm": True,
            "report_to": [],
            "save_strategy": "no",
        }
        if held_out_rows is None:
            held_out_rows = (
                language.held_out()
                if held_out_per_skill is None
                else language.held_out(held_out_per_skill)
            )
        if rows is None:
            rows = (
                language.pool(seed=seed)
                if pool_per_skill is None
                else language.pool(pool_per_skill, seed=seed)
            )
        grading = grading or Grading(
            lambda seed: [language.make_reward(seed)], expected=lambda right: right
        )
        settings["reward_weights"] = list(grading.weights)
        first, *others = grading.functions(seed)
        recorder = Recorder(
            held_out_rows,
            eval_every,
            eval_samples,
            progress,
            language,
            max_rollouts,
            grading.expected,
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(weights),
            reward_funcs=[recorder.watch(first), *others],
            args=GRPOConfig(**{**settings, **overrides}),
            train_dataset=Dataset.from_list(list(rows)),
        )
        recorder.trainer = trainer
        # it prints every log line; they stay in trainer.state.log_history
        trainer.remove_callback(PrinterCallback)
        if attach is not None:
            attach(trainer)
        # after a policy's callback, which writes the evaluations next to its ledger
        trainer.add_callback(recorder)
        trainer.train()
    losses = tuple(float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry)
    return Run(tuple(recorder.curve), losses, trainer, recorder.right_P[0], recorder.right_P[-1])
