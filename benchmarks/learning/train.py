"""Runs TRL's GRPOTrainer once on a tiny language, and records the learning curve.

Measuring does not change the run: the reward function counts rewards, and the evaluation has its
own random generator.
"""

import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.utils import logging as hf_logging
from trl import GRPOConfig, GRPOTrainer

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.heldout import Success, evaluate
from budgetalloc.trl.callback import AdaptiveGRPOCallback

__all__ = ["CurvePoint", "Recorder", "Run", "train"]


@dataclass(frozen=True)
class CurvePoint:
    """The run after `step` optimizer steps.

    Args:
        step: Optimizer steps so far.
        expected: Held-out success: the mean probability of the right answer, on what can be learned;
            if the language has `evaluate`, the success by that.
        pass64: The exact mean probability that at least one of 64 answers is right.
        mixed_groups: The share of groups (one prompt in one step) with unequal rewards, since the
            last point. None at the start.
        mixed_rollouts: The share of rollouts in such groups.
        rollouts, tokens: Rollouts and completion tokens generated so far.
        seconds: Time spent in training, without the evaluations.
    """

    step: int
    expected: float
    pass64: float
    mixed_groups: float | None
    mixed_rollouts: float | None
    rollouts: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Run:
    """The result of `train`."""

    curve: tuple[CurvePoint, ...]
    losses: tuple[float, ...]  # TRL's logged loss, one per step
    clipped: float  # TRL's share of clipped tokens, the mean over the steps
    trainer: Any
    start_P: tuple[float, ...]  # before training: `heldout.Success.right_P`
    end_P: tuple[float, ...]  # the same after training


class Recorder(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Counts every reward, and adds a point to `curve` every `eval_every` steps: of `measure()`."""

    def __init__(self, measure: Callable[[], Success], eval_every: int, progress: bool) -> None:
        self.measure, self.eval_every, self.progress = measure, eval_every, progress
        self.max_rollouts: int | None = None
        self.curve: list[CurvePoint] = []
        self.right_P: list[tuple[float, ...]] = []  # as `Success.right_P`, at each point
        self.attached: AdaptiveGRPOCallback | None = None
        self._groups: dict[Any, Counter[float]] = defaultdict(Counter)  # (step, prompt id): rewards
        self._rollouts = self._tokens = 0
        self._seconds = 0.0

    def watch(self, reward: Callable[..., list[float]]) -> Callable[..., list[float]]:
        """Wraps a reward function so that it counts. Rows of the same prompt in one step are one
        group."""

        def testbed_reward(prompt_id: Sequence[int], **columns: Any) -> list[float]:
            rewards_R = reward(prompt_id=prompt_id, **columns)
            step = int(columns["trainer_state"].global_step)
            for i, value in zip(prompt_id, rewards_R, strict=True):
                self._groups[step, int(i)][value] += 1
            self._rollouts += len(rewards_R)
            self._tokens += sum(len(ids) for ids in columns["completion_ids"])
            return rewards_R

        return testbed_reward

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar = tqdm(total=state.max_steps, desc="GRPO", unit="step", disable=not self.progress)
        self._resumed = time.perf_counter()
        self._point(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.update(1)
        enough = self.max_rollouts is not None and self._rollouts >= self.max_rollouts
        if enough and state.global_step % args.num_iterations == 0:
            control.should_training_stop = True
        ends = control.should_training_stop or state.global_step == state.max_steps
        if ends or state.global_step % self.eval_every == 0:
            self._point(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.close()

    def _point(self, step: int) -> None:
        began = time.perf_counter()
        self._seconds += began - self._resumed
        found = self.measure()
        sizes = [group.total() for group in self._groups.values()]
        mixed = [group.total() for group in self._groups.values() if len(group) > 1]
        self._groups.clear()
        self.right_P.append(found.right_P)
        self.curve.append(
            CurvePoint(
                step,
                found.expected,
                found.pass_at(64),
                len(mixed) / len(sizes) if sizes else None,
                sum(mixed) / sum(sizes) if sizes else None,
                self._rollouts,
                self._tokens,
                round(self._seconds, 3),
            )
        )
        if self.attached is not None:
            self.attached.held_out(found.expected, time.perf_counter() - began)
        self._bar.set_postfix(success=f"{found.expected:.3f}")
        self._resumed = time.perf_counter()


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
    language: Any = skills,
    rows: Sequence[dict[str, Any]] | None = None,
    held_out_rows: Sequence[dict[str, Any]] | None = None,
    reward_funcs: Sequence[Callable[..., list[float]]] | None = None,
    weights: str | Path | None = None,
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
        language: A module like `skills`: weights, rows and reward.
        rows, held_out_rows, reward_funcs, weights: Replace those of the language. Shares of mixed
            groups are about the first reward function; success is that of the language.
        threads: torch's number of CPU threads. Use 1 if several runs share the machine.
        overrides: Arguments of GRPOConfig.
    """
    weights = weights or language.WEIGHTS
    if not (Path(weights) / "config.json").is_file():
        raise FileNotFoundError(
            f"train(weights={str(weights)!r}): the folder has no model. Make one with "
            f"`python benchmarks/learning/pretrain.py --out {weights}`, which takes --language or "
            "--size."
        )
    if threads is not None:
        torch.set_num_threads(threads)
    first, *others = reward_funcs or [language.make_reward(seed)]
    measured = language.held_out() if held_out_rows is None else held_out_rows
    trained = language.pool(seed=seed) if rows is None else rows
    measure = getattr(language, "evaluate", partial(evaluate, language=language))
    recorder = Recorder(
        lambda: measure(trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class, measured),
        eval_every,
        progress,
    )
    recorder.max_rollouts = max_rollouts
    bars = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()  # of loading the model
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing.*", category=FutureWarning)
        settings: dict[str, Any] = {
            "output_dir": scratch,
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
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(weights),
            reward_funcs=[recorder.watch(first), *others],
            args=GRPOConfig(**{**settings, **overrides}),
            train_dataset=Dataset.from_list(list(trained)),
        )
        if bars:
            hf_logging.enable_progress_bar()
        # it prints every log line; they stay in trainer.state.log_history
        trainer.remove_callback(PrinterCallback)
        if attach is not None:
            attach(trainer)
        for each in trainer.callback_handler.callbacks:
            if isinstance(each, AdaptiveGRPOCallback):
                recorder.attached = each  # writes the evaluations next to its ledger
        trainer.add_callback(recorder)
        trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    losses = tuple(float(entry["loss"]) for entry in logged)
    clipped = fmean(entry["clip_ratio/region_mean"] for entry in logged)
    return Run(tuple(recorder.curve), losses, clipped, trainer, recorder.right_P[0], recorder.right_P[-1])
