"""The learning curve of a GRPO run, recorded by a callback while TRL trains."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.heldout import evaluate, probability
from budgetalloc.cli.testbed.language import Language
from budgetalloc.cli.testbed.metrics import of_baselines, pass_at
from budgetalloc.trl.callback import AdaptiveGRPOCallback

__all__ = ["CurvePoint", "Recorder"]


@dataclass(frozen=True)
class CurvePoint:
    """The run after `step` optimizer steps.

    Args:
        step: Optimizer steps so far.
        success: Held-out success, sampled at temperature 1, on the skills that can be learned.
        expected: The mean probability of the right answer to the same prompts: `success` without
            sampling noise.
        trap_success: Held-out success on the traps, which cannot improve.
        pass8, pass64: Mean probability that at least one of 8, or 64, answers is right; exact.
        entropy: Mean entropy of the next token over the tokens of the sampled answers, in nats.
        baseline_error: Mean squared difference between a rollout's baseline and the true
            probability of its reward, in the last step and without traps. None at the start,
            without an `AdaptiveGRPOCallback`, and if no true probability is known.
        explained: The share of a new reward's variance that these baselines explain; see
            `metrics.of_baselines`.
        mixed_groups: The share of groups (one prompt in one step) with unequal rewards, since the
            last point. None at the start.
        mixed_rollouts: The share of rollouts in such groups.
        rollouts, tokens: Rollouts and completion tokens generated so far.
        seconds: Time spent in training, without the evaluations.
    """

    step: int
    success: float
    expected: float
    trap_success: float
    pass8: float
    pass64: float
    entropy: float
    baseline_error: float | None
    explained: float | None
    mixed_groups: float | None
    mixed_rollouts: float | None
    rollouts: int
    tokens: int
    seconds: float


class Recorder(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Counts every reward, measures the model every `eval_every` steps, and appends a point to
    `curve`."""

    def __init__(
        self,
        rows: Sequence[dict[str, Any]],
        eval_every: int,
        samples: int,
        progress: bool,
        language: Language = skills,
        max_rollouts: int | None = None,
        expected: Callable[[float], float] | None = None,
    ) -> None:
        self.language, self.max_rollouts, self.expected = language, max_rollouts, expected
        self.rows, self.eval_every, self.samples, self.progress = (
            rows,
            eval_every,
            samples,
            progress,
        )
        self.curve: list[CurvePoint] = []
        self.trainer: Any = None
        # as `Success.right_P`, at each point of the curve
        self.right_P: list[tuple[float, ...]] = []
        # (step, prompt id): rewards
        self._groups: dict[tuple[int, int], Counter[float]] = defaultdict(Counter)
        # by prompt id, before the update of the step that is measured
        self._true: dict[int, float] = {}
        self._rollouts = self._tokens = 0
        self._seconds = 0.0
        self._resumed = time.perf_counter()
        self._bar: Any = None

    def watch(self, reward: Callable[..., list[float]]) -> Callable[..., list[float]]:
        """Wraps a reward function so that it counts. Rows of the same prompt in one step are one
        group."""

        def watched(
            completions: Sequence[str], prompt_id: Sequence[int], **columns: Any
        ) -> list[float]:
            rewards_R = reward(completions=completions, prompt_id=prompt_id, **columns)
            step = int(columns["trainer_state"].global_step)
            for i, value in zip(prompt_id, rewards_R, strict=True):
                self._groups[step, int(i)][value] += 1
            self._rollouts += len(rewards_R)
            self._tokens += sum(len(ids) for ids in columns["completion_ids"])
            if self.expected is not None and self._is_point(step + 1):
                self._learn_truth(columns["prompts"], prompt_id)
            return rewards_R

        watched.__name__ = "testbed_reward"  # TRL logs it by name
        return watched

    def _is_point(self, step: int) -> bool:
        return step % self.eval_every == 0 or step == self.trainer.state.max_steps

    def _learn_truth(self, prompts_R: Sequence[str], ids_R: Sequence[int]) -> None:
        """Computes the true probabilities of a step's prompts before the model changes."""
        began = time.perf_counter()
        new = {
            int(i): text
            for i, text in zip(ids_R, prompts_R, strict=True)
            if not self.language.is_trap(int(i))
        }
        new = {i: text for i, text in new.items() if i not in self._true}
        if new:
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            answers = [self.language.answer(text) for text in new.values()]
            right_P = probability(model, self.trainer.processing_class, list(new.values()), answers)
            self._true.update(zip(new, right_P, strict=True))
        self._resumed += time.perf_counter() - began  # not part of the training time

    def _attached(self) -> AdaptiveGRPOCallback | None:
        callbacks = self.trainer.callback_handler.callbacks
        return next((each for each in callbacks if isinstance(each, AdaptiveGRPOCallback)), None)

    def _baselines(self) -> tuple[float | None, float | None]:
        """The error of the last step's baselines, and the share of the variance that they
        explain."""
        attached = self._attached()
        if self.expected is None or attached is None or attached.batch is None:
            return None, None
        baseline_R = attached.options.advantages(attached.batch).baseline_R.tolist()
        pairs = zip(baseline_R, attached.batch.ids_R, strict=True)
        known = [(b, self._true[i]) for b, i in pairs if i in self._true and not math.isnan(b)]
        return (
            of_baselines([b for b, _ in known], [self.expected(p) for _, p in known])
            if known
            else (None, None)
        )

    def mixed(self) -> tuple[float | None, float | None]:
        """Shares of the groups, and of the rollouts, with unequal rewards in the group, since the
        last point."""
        sizes = [group.total() for group in self._groups.values()]
        mixed = [group.total() for group in self._groups.values() if len(group) > 1]
        return (len(mixed) / len(sizes), sum(mixed) / sum(sizes)) if sizes else (None, None)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar = tqdm(total=state.max_steps, desc="GRPO", unit="step", disable=not self.progress)
        self._resumed = time.perf_counter()
        self._measure(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.update(1)
        if self.max_rollouts is not None and self._rollouts >= self.max_rollouts:
            control.should_training_stop = True
        if control.should_training_stop or self._is_point(state.global_step):
            self._measure(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.close()

    def _measure(self, step: int) -> None:
        began = time.perf_counter()
        self._seconds += began - self._resumed
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        evaluation = evaluate(
            model, self.trainer.processing_class, self.rows, self.samples, language=self.language
        )
        mixed_groups, mixed_rollouts = self.mixed()
        baseline_error, explained = self._baselines()
        self.right_P.append(evaluation.right_P)
        point = CurvePoint(
            step=step,
            success=evaluation.skills,
            expected=evaluation.expected,
            trap_success=evaluation.traps,
            pass8=pass_at(evaluation.right_P, 8),
            pass64=pass_at(evaluation.right_P, 64),
            entropy=evaluation.entropy,
            baseline_error=baseline_error,
            explained=explained,
            mixed_groups=mixed_groups,
            mixed_rollouts=mixed_rollouts,
            rollouts=self._rollouts,
            tokens=self._tokens,
            seconds=round(self._seconds, 3),
        )
        self.curve.append(point)
        if (attached := self._attached()) is not None:
            attached.held_out(point.expected, time.perf_counter() - began)
        several = [len(group) > 1 for group in self._groups.values() if group.total() > 1]
        self._groups.clear()
        self._true.clear()
        shown = {"mixed": f"{sum(several) / len(several):.2f}"} if several else {}
        self._bar.set_postfix(success=f"{point.success:.3f}", **shown)
        self._resumed = time.perf_counter()
