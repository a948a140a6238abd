"""The learning curve of a GRPO run, recorded by a callback while TRL trains."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.heldout import evaluate
from budgetalloc.cli.testbed.language import Language


@dataclass(frozen=True)
class CurvePoint:
    """The run after `step` optimizer steps. Shares are over the steps since the last point, None at the start."""

    step: int
    success: float
    """Held-out success of the skills that can be learned, sampled at temperature 1."""
    expected: float
    """The same without sampling noise: the mean probability of the right answer."""
    trap_success: float
    """Held-out success of the traps; it cannot improve."""
    mixed_groups: float | None
    """Share of groups (one prompt in one step) with both a pass and a fail."""
    mixed_rollouts: float | None
    """Share of rollouts in such groups; differs from `mixed_groups` if groups are uneven."""
    rollouts: int
    """Generated so far."""
    tokens: int
    """Completion tokens generated so far."""
    seconds: float
    """Time spent in training, without the evaluations."""


class Recorder(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Counts every reward; after every `eval_every` steps it measures the model and appends a point to `curve`."""

    def __init__(
        self,
        rows: Sequence[dict[str, Any]],
        eval_every: int,
        samples: int,
        progress: bool,
        language: Language = skills,
        max_rollouts: int | None = None,
    ) -> None:
        self.language, self.max_rollouts = language, max_rollouts
        self.rows, self.eval_every, self.samples, self.progress = rows, eval_every, samples, progress
        self.curve: list[CurvePoint] = []
        self.trainer: Any = None
        self._groups: dict[tuple[int, int], Counter[bool]] = defaultdict(Counter)  # (step, prompt id): passes, fails
        self._rollouts = self._tokens = 0
        self._seconds = 0.0
        self._resumed = time.perf_counter()
        self._bar: Any = None

    def watch(self, reward: Callable[..., list[float]]) -> Callable[..., list[float]]:
        """The same reward function, which also counts: rows of the same prompt in one step are one group."""

        def watched(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
            rewards_R = reward(completions=completions, prompt_id=prompt_id, **columns)
            step = int(columns["trainer_state"].global_step)
            for i, value in zip(prompt_id, rewards_R, strict=True):
                self._groups[step, int(i)][value > 0.5] += 1
            self._rollouts += len(rewards_R)
            self._tokens += sum(len(ids) for ids in columns["completion_ids"])
            return rewards_R

        watched.__name__ = "testbed_reward"  # TRL logs it by name
        return watched

    def mixed(self) -> tuple[float | None, float | None]:
        """Shares of the groups, and of the rollouts, with both a pass and a fail in the group, since the last point."""
        sizes = [group.total() for group in self._groups.values()]
        mixed = [group.total() for group in self._groups.values() if len(group) == 2]
        return (len(mixed) / len(sizes), sum(mixed) / sum(sizes)) if sizes else (None, None)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar = tqdm(total=state.max_steps, desc="GRPO", unit="step", disable=not self.progress)
        self._resumed = time.perf_counter()
        self._measure(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.update(1)
        if self.max_rollouts is not None and self._rollouts >= self.max_rollouts:
            control.should_training_stop = True
        last = control.should_training_stop or state.global_step == state.max_steps
        if last or state.global_step % self.eval_every == 0:
            self._measure(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.close()

    def _measure(self, step: int) -> None:
        self._seconds += time.perf_counter() - self._resumed
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        found = evaluate(model, self.trainer.processing_class, self.rows, self.samples, language=self.language)
        mixed_groups, mixed_rollouts = self.mixed()
        point = CurvePoint(
            step=step,
            success=found.skills,
            expected=found.expected,
            trap_success=found.traps,
            mixed_groups=mixed_groups,
            mixed_rollouts=mixed_rollouts,
            rollouts=self._rollouts,
            tokens=self._tokens,
            seconds=round(self._seconds, 3),
        )
        self.curve.append(point)
        self._groups.clear()
        shown = {} if mixed_groups is None else {"mixed": f"{mixed_groups:.2f}"}
        self._bar.set_postfix(success=f"{point.success:.3f}", **shown)
        self._resumed = time.perf_counter()
