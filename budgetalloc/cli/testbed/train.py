"""One real GRPO run on the testbed by TRL's own GRPOTrainer, and its learning curve.

    run = train(seed=0)                                     # uniform: 32 prompts x 8 rollouts a step
    run = train(seed=0, language=growing)                   # another task language, see `language`
    run = train(seed=0, attach=lambda t: t.add_callback(AdaptiveGRPOCallback(t, policy)))
    run.curve[-1].success

The curve is taken from the outside: rewards as they pass through the reward function, success by sampling on held-out
prompts with a generator of its own. Measuring more or less often leaves the run as it is.
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
from budgetalloc.cli.testbed.language import Language


@dataclass(frozen=True)
class Run:
    """What `train` returns."""

    curve: tuple[CurvePoint, ...]
    losses: tuple[float, ...]
    """TRL's logged loss, one a step."""
    trainer: Any

    def mean_success(self) -> float:
        """Mean of the curve's success over the run by the trapezoid rule: high for a run that learns early."""
        pairs = list(zip(self.curve, self.curve[1:], strict=False))
        if not pairs:
            return self.curve[0].success
        area = sum((b.step - a.step) * (a.success + b.success) / 2 for a, b in pairs)
        return area / (self.curve[-1].step - self.curve[0].step)


@contextmanager
def _quiet() -> Iterator[None]:
    """No bar for loading 30 tensors, and no warning about a name that TRL and transformers are changing."""
    bars = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)
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
    weights: str | Path | None = None,
    output_dir: str | Path | None = None,
    threads: int | None = None,
    progress: bool = True,
    **overrides: Any,
) -> Run:
    """Run GRPO for `steps` steps of `prompts` x `generations` rollouts, and record the curve.

    `max_rollouts` ends it sooner, after the step that reaches so many: a policy may generate more than it trains on.
    `attach` is given the trainer before it starts. `seed` moves the pool, its order, the sampling and the traps' coins;
    the held-out prompts stay, so that runs compare. `overrides` go to GRPOConfig last. `threads` is torch's number of
    CPU threads: 1 where runs go side by side. `language` brings its own sizes, weights, reward and rows; `rows` and
    `held_out_rows` replace the usual pool and held-out prompts, and must be of that language.
    A GPU is used where there is one. One process only: the curve would miss the rewards of other ranks.
    """
    if eval_every < 1:
        raise ValueError(
            f"train(eval_every={eval_every}): no curve without points. Use 10, or {steps} for the ends only."
        )
    weights = weights or language.WEIGHTS
    if not (Path(weights) / "config.json").is_file():
        raise FileNotFoundError(
            f"train(weights={str(weights)!r}): no model there. Make one with "
            f"`python benchmarks/learning/pretrain.py --out {weights}`."
        )
    if threads is not None:
        torch.set_num_threads(threads)
    with _quiet(), tempfile.TemporaryDirectory() as scratch:  # the folder, where the caller wants none
        settings: dict[str, Any] = {
            "output_dir": str(output_dir or scratch),
            "max_steps": steps,
            "learning_rate": learning_rate,
            "lr_scheduler_type": "constant",  # so that a longer run begins as a shorter one
            "per_device_train_batch_size": prompts * generations,
            "num_generations": generations,
            "max_completion_length": language.ANSWER_LENGTH + 1,  # and the end of text
            "temperature": 1.0,
            "beta": 0.0,
            "use_cpu": not torch.cuda.is_available(),
            "bf16": False,  # 340 k parameters: nothing to save
            "gradient_checkpointing": False,
            "seed": seed,
            "logging_steps": 1,
            "disable_tqdm": True,
            "report_to": [],
            "save_strategy": "no",
        }
        if held_out_rows is None:
            held_out_rows = language.held_out() if held_out_per_skill is None else language.held_out(held_out_per_skill)
        if rows is None:
            rows = language.pool(seed=seed) if pool_per_skill is None else language.pool(pool_per_skill, seed=seed)
        recorder = Recorder(held_out_rows, eval_every, eval_samples, progress, language, max_rollouts)
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(weights),
            reward_funcs=recorder.watch(language.make_reward(seed)),
            args=GRPOConfig(**{**settings, **overrides}),
            train_dataset=Dataset.from_list(list(rows)),
        )
        recorder.trainer = trainer
        trainer.remove_callback(PrinterCallback)  # it prints every log line; they stay in trainer.state.log_history
        trainer.add_callback(recorder)
        if attach is not None:
            attach(trainer)
        trainer.train()
    losses = tuple(float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry)
    return Run(tuple(recorder.curve), losses, trainer)
