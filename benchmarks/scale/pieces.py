"""One training run by TRL's own GRPOTrainer, in pieces: it pauses before the time is over, and continues later.

What a run has to remember is in TRL's checkpoint: model, optimizer, random states; the beliefs, by the callback; the
counts of the curve, in transformers' `trainer_state.json`, so that they are of the same step as the rest.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from lighter import freeze_lower, share_prefill  # beside this file
from questions import TASKS, Task
from results import Run, append
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.trainer_callback import ExportableState
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.checkpoints import last_checkpoint

POLICIES: dict[str, tuple[Callable[[int], ba.Policy], int]] = {  # how it is made from a seed; `num_generations`
    "uniform4": (lambda seed: ba.uniform(seed=seed), 4),
    "uniform8": (lambda seed: ba.uniform(seed=seed), 8),
    "spo": (lambda seed: ba.methods.spo(seed=seed), 8),
    "sampled": (lambda seed: policies.sampled(groups=2, seed=seed), 8),
    "sampled_seconds": (lambda seed: policies.sampled(groups=2, seed=seed), 8),
    "uniform2": (lambda seed: ba.uniform(seed=seed), 2),
    "ar3po": (lambda seed: ba.methods.ar3po(seed=seed), 8),
    "adaptive_3": (lambda seed: ba.adaptive(rounds=3, seed=seed), 8),
    "equal_singles": (lambda seed: policies.sampled(power=(0, 0), seed=seed), 8),  # the baseline without the choice
    "adaptive_kind": (lambda seed: ba.adaptive(seed=seed), 8),
}
OPTIONS: dict[str, dict[str, Any]] = {  # of the callback
    "sampled_seconds": {"cost": "seconds"},
    "adaptive_kind": {"features": "kind"},  # a column: beliefs are shared by the kind of the question
}
POOLS = {"once": 1, "ten": 10}  # how often a run in groups of one meets a prompt; one in groups of 8, an eighth of it
SAMPLES = 8  # of each held-out prompt
_SAVING = 30.0  # seconds for writing the checkpoint, about 1.6 GB, and for the end of the process


@dataclass(frozen=True)
class Job:
    """A run, by all that decides how it goes. Its lines in the results file begin with these fields."""

    task: str
    pool: str
    policy: str
    rate: float
    seed: int = 0
    steps: int = 150
    rollouts_a_step: int = 256
    longest: int = 16
    """Tokens of a completion, at most."""
    held_out: int = 128
    """Prompts that success is measured on."""
    model: str = "SmolLM2-135M-Instruct"
    upper: float = 1.0
    """The share of the layers that is trained, from the top; below 1.0, embeddings stand still too."""
    precision: str = "float32"
    """Of the matrix products; weights and the optimizer are of float32."""

    @property
    def name(self) -> str:
        """A folder's name."""
        return "_".join(f"{value:g}" if isinstance(value, float) else str(value) for value in asdict(self).values())

    def pool_size(self) -> int:
        return self.steps * self.rollouts_a_step // POOLS[self.pool]


class Deadline:
    """When a run has to pause. `passed()` is called after each step, and allows for one more like the longest so far.

    >>> clock = iter([0, 100, 110, 190]).__next__
    >>> deadline = Deadline(240, clock)           # at 0
    >>> deadline.start()                          # at 100: what came before was no step
    >>> deadline.passed(), deadline.passed()      # at 110, and after a step of 80 at 190
    (False, True)
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._longest = clock, 0.0
        self._end = clock() + seconds - _SAVING

    def start(self) -> None:
        self._last = self._clock()

    def passed(self) -> bool:
        now = self._clock()
        self._longest, self._last = max(self._longest, now - self._last), now
        return now + 1.2 * self._longest > self._end


class Curve(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Counts what is generated, writes a point of the curve every `every` steps, and pauses the run at the deadline."""

    def __init__(
        self,
        measure: Callable[[], list[int]],
        write: Callable[[dict[str, Any]], None],
        every: int,
        clock: Callable[[], float],
    ) -> None:
        self.measure, self.write, self.every, self.clock = measure, write, every, clock
        self.passed: Callable[[], bool] = lambda: False
        self.start: Callable[[], None] = lambda: None
        self.counts: dict[str, Any] = {"rollouts": 0, "tokens": 0, "seconds": 0.0}

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"counts": self.counts}}

    def watch(self, reward: Callable[..., list[float]]) -> Callable[..., list[float]]:
        """The same reward function, which also counts."""

        def correct(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
            self.counts["rollouts"] += len(completion_ids)
            self.counts["tokens"] += sum(map(len, completion_ids))
            return reward(**columns)

        return correct

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step:
            self.counts = dict(state.stateful_callbacks["Curve"]["attributes"]["counts"])
        else:
            self._point(0)
        self._resumed = self.clock()
        self.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.counts["seconds"] += self.clock() - self._resumed
        if state.global_step % self.every == 0 or state.global_step == state.max_steps:
            self._point(state.global_step)
        if self.passed() and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
        self._resumed = self.clock()

    def _point(self, step: int) -> None:
        right_P = self.measure()
        self.write(
            {
                "step": step,
                **self.counts,
                "seconds": round(self.counts["seconds"], 3),
                "success": round(sum(right_P) / (SAMPLES * len(right_P)), 6),
                "pass8": round(sum(right > 0 for right in right_P) / len(right_P), 8),
            }
        )


def right_of(
    model: Any, tokenizer: Any, rows: Sequence[dict[str, Any]], reward: Any, tokens: int, batch: int, precision: str
) -> list[int]:
    """How many of `SAMPLES` completions at temperature 1 are right, one entry a row; changes no random state."""
    right: list[int] = []
    was_training = model.training
    model.eval()
    reduced = torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bfloat16")
    with torch.random.fork_rng(), torch.no_grad(), reduced:
        for at in range(0, len(rows), batch // SAMPLES):
            part = [row for row in rows[at : at + batch // SAMPLES] for _ in range(SAMPLES)]
            torch.manual_seed(at)
            asked = tokenizer([row["prompt"] for row in part], return_tensors="pt", padding=True).to(model.device)
            said = model.generate(
                **asked,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=tokens,
                pad_token_id=tokenizer.pad_token_id,
            )[:, asked["input_ids"].shape[1] :]
            texts = tokenizer.batch_decode(said, skip_special_tokens=True)
            rewards = reward(completions=texts, prompt_id=[row["prompt_id"] for row in part])
            right += [int(sum(rewards[k : k + SAMPLES])) for k in range(0, len(rewards), SAMPLES)]
    model.train(was_training)
    return right


def finished(job: Job, runs: dict[Run, list[dict[str, Any]]]) -> bool:
    """Whether the results file has the run's last point."""
    points = runs.get(tuple(asdict(job).items()))
    return points is not None and points[-1]["step"] == job.steps


def train(
    job: Job,
    weights: Path,
    work: Path,
    out: Path,
    deadline: Deadline | None = None,
    *,
    every: int = 15,
    batch: int = 64,
    task: Task | None = None,
) -> bool:
    """Begins or continues the run; appends its points to `out`. Returns whether the run is finished.

    Args:
        job: The run. weights: The folder of its model. work: Where its checkpoints are kept until it is finished.
        out: The results file. deadline: When to pause; None: never.
        every: Steps between two points. batch: Rows that go through the model at once.
        task: The questions; those of `job.task` if left out.
    """
    task = task or TASKS[job.task]
    folder = work / job.name
    build, generations = POLICIES[job.policy]
    cuda = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if cuda else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(weights, padding_side="left")
    held_out = task.held_out(job.held_out)
    rows = task.asked(task.rows(job.pool_size(), job.seed, without=held_out))
    measured = task.asked(held_out)

    def write(point: dict[str, Any]) -> None:
        append(out, {**asdict(job), "device": device, **point})

    def measure() -> list[int]:
        return right_of(trainer.model, tokenizer, measured, task.reward, job.longest, 4 * batch, job.precision)

    # On a CPU, the seconds of this process: other work on the machine does not count.
    curve = Curve(measure, write, every, time.perf_counter if cuda else time.process_time)
    if deadline is not None:
        curve.passed, curve.start = deadline.passed, deadline.start
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    if job.upper < 1.0:
        freeze_lower(model, job.upper)
    share_prefill(model)
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=curve.watch(task.reward),
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=job.steps,
            learning_rate=job.rate,
            lr_scheduler_type="constant",
            per_device_train_batch_size=min(batch, job.rollouts_a_step),
            gradient_accumulation_steps=max(1, job.rollouts_a_step // batch),
            num_generations=generations,
            max_completion_length=job.longest,
            temperature=1.0,
            beta=0.0,
            use_cpu=not cuda,
            bf16=job.precision == "bfloat16",
            gradient_checkpointing=False,
            seed=job.seed,
            logging_steps=1,
            save_strategy="no",  # the curve saves when it pauses
            save_total_limit=1,
            disable_tqdm=True,
            report_to=[],
        ),
        train_dataset=Dataset.from_list(rows),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(AdaptiveGRPOCallback(trainer, build(job.seed), **OPTIONS.get(job.policy, {})))
    trainer.add_callback(curve)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    if trainer.state.global_step < job.steps:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True
