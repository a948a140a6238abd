"""The callback that lets a policy decide the rollout counts of TRL's `GRPOTrainer`, step by step."""

import logging
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import trl
from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from budgetalloc.advantages import Baseline, Scale, Weight
from budgetalloc.errors import UnsupportedError
from budgetalloc.logs.write import LedgerWriter
from budgetalloc.policies import Policy, adaptive
from budgetalloc.trl.checkpoints import load_beliefs, save_beliefs, whole_or_refused
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer
from budgetalloc.trl.generation import Generation
from budgetalloc.trl.options import Options
from budgetalloc.trl.prompts import Prompts
from budgetalloc.trl.support import check_only_one, check_served, check_trainer, warn_unaligned_saves

logger = logging.getLogger(__name__)


class AdaptiveGRPOCallback(TrainerCallback):  # type: ignore[misc]
    """Lets an allocation policy decide how many rollouts each prompt gets.

    `trainer.add_callback(AdaptiveGRPOCallback(trainer))` is all that a user adds. Counts are decided when completions
    are about to be generated, from all rewards seen so far. The rows of a generation batch stay as many as
    `GRPOConfig` says; only whose they are changes. Evaluation is untouched. With `candidates` other than 1 the
    trainer's loader still sets the pace: an epoch is as many steps as without the callback, not a visit to every
    prompt.

    Metrics go through the trainer's log. W&B, trackio and TensorBoard, where `report_to` names them, also get
    histograms of the counts and of the predicted success rates since the last log, and a table of the 20 prompts that
    cost most tokens so far.

    Args:
        trainer: A `trl.GRPOTrainer`.
        policy: The allocation policy; `budgetalloc.adaptive()` if left out.
        candidates: Prompts to choose among. 1: the batch's own; rollouts move between them. k: k times as many, the
            others drawn from the train dataset. "all": the whole train dataset. Left out, what the policy asks for.
        baseline, scale, weight: As in `budgetalloc.group_advantages`. Left out, what the policy asks for; where it asks
            for the trainer's own, `scale` is `GRPOConfig.scale_rewards`, and the advantages of a batch whose rows
            are untouched stay as TRL computes them.
        floor: Fewest rollouts of a prompt; left out, 2 with `candidates=1` and 0 otherwise.
        cap: Most rollouts of a prompt; left out, 8 times `num_generations` (more where there are too few prompts).
        min_group: Smallest group that is not empty. Left out, what the policy asks for.
        quantum: Counts are multiples of it.
        prompt_id: The dataset column that names prompts. Without it a prompt is named by its hash. Rows with the same
            name are one prompt, of which the first row is used.
        reward_range: Lowest and highest total reward, mapped to [0, 1] for the beliefs.
        hint: For `policies.on_all_fail`: from a dataset row to the row with a hint in its prompt. Rollouts with it are
            of their prompt's group, are trained on with the hint in the prompt, and are logged as "ID (hinted)".
        buffer: Responses of earlier steps that take the place of rows without signal: a `SelectiveSampleBuffer` or
            a `CorrectResponseBuffer` of `budgetalloc.trl.experimental.buffers`. They are trained on with the log-probabilities of the
            model that wrote them; beliefs, metrics and ledger see fresh rollouts only. A step is an optimizer step.
            The buffer's own state is saved in checkpoints beside that of the policy.
        ledger: A file to which every rollout is appended; see `budgetalloc.logs.ledger`.
        allow_dataset_change: Resume with another train dataset than the checkpoint's; known prompts keep their beliefs.

    Raises:
        UnsupportedError: not a `GRPOTrainer`; a version of TRL without the methods needed; an option that cannot be
            served correctly. InputError: a bad argument, or a second callback of this kind. BudgetError: floor, cap,
            min_group and quantum contradict each other.
    """

    def __init__(
        self,
        trainer: Any,
        policy: Policy | None = None,
        *,
        candidates: int | Literal["all"] | None = None,
        baseline: Baseline | None = None,
        scale: Scale | None = None,
        weight: Weight | None = None,
        floor: int | None = None,
        cap: int | None = None,
        min_group: int | None = None,
        quantum: int = 1,
        prompt_id: str = "prompt_id",
        reward_range: tuple[float, float] = (0.0, 1.0),
        hint: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        buffer: SelectiveSampleBuffer | CorrectResponseBuffer | None = None,
        ledger: str | os.PathLike[str] | None = None,
        allow_dataset_change: bool = False,
    ) -> None:
        check_trainer(trainer)
        self.trainer = trainer
        self.policy = adaptive() if policy is None else policy
        given = {
            "candidates": candidates,
            "baseline": baseline,
            "scale": scale,
            "weight": weight,
            "floor": floor,
            "cap": cap,
            "min_group": min_group,
            "quantum": quantum,
            "reward_range": reward_range,
            "hint": hint,
            "buffer": buffer,
        }
        self.options = Options.resolve(self.policy.needs, trainer.scale_rewards, given)
        self.prompts = Prompts(trainer.train_dataset, prompt_id)
        check_served(trainer, self.options, self.prompts)
        # A contradiction between floor, cap and quantum shows now, not after an hour of loading.
        self.options.budget(trainer.args.generation_batch_size, 1, trainer.num_generations)
        self.generation = Generation(trainer, self.policy, self.prompts, self.options)
        self.ledger_path = ledger
        self.allow_dataset_change = allow_dataset_change
        self._stand_before(trainer)

    def _stand_before(self, trainer: Any) -> None:
        """Saving, loading and training itself: callbacks hear nothing of folders, nor of a run ended by an exception.

        The beliefs are in a checkpoint's folder before TRL begins to fill it, and transformers writes its own
        TRAINER_STATE_NAME last: a folder that has it has everything.
        """
        train, save, restore = trainer.train, trainer._save_checkpoint, trainer._load_optimizer_and_scheduler

        @wraps(train)
        def train_and_release(resume_from_checkpoint: str | bool | None = None, *more: Any, **named: Any) -> Any:
            if resume_from_checkpoint is True and self._attached():
                resume_from_checkpoint = whole_or_refused(trainer.args.output_dir)
            try:
                return train(resume_from_checkpoint, *more, **named)
            finally:
                self.generation.release()

        @wraps(save)
        def save_all(model: Any, trial: Any) -> None:
            if trainer.args.should_save and self._attached():
                run = Path(trainer._get_output_dir(trial=trial))
                folder = run / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
                # An older run's folder, written over: half of each must not pass for a checkpoint.
                (folder / TRAINER_STATE_NAME).unlink(missing_ok=True)
                self._save(folder)
            save(model, trial)

        @wraps(restore)
        def restore_all(checkpoint: str | None) -> None:
            restore(checkpoint)
            if checkpoint is not None and self._attached():
                load_beliefs(Path(checkpoint), self.policy, self.prompts.fingerprint, self.allow_dataset_change)
                reuse = self.generation.learning.reuse
                if reuse is not None and not reuse.load(Path(checkpoint)):
                    logger.warning("%s has no state of a buffer: it starts empty.", checkpoint)
                if self.generation.learning.reporting is not None:
                    self.generation.learning.reporting.load(Path(checkpoint))

        trainer.train, trainer._save_checkpoint = train_and_release, save_all
        trainer._load_optimizer_and_scheduler = restore_all

    def _attached(self) -> bool:
        return self in self.trainer.callback_handler.callbacks

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Takes hold of generation and scoring for the time of the training."""
        check_only_one(self.trainer, self)
        warn_unaligned_saves(self.trainer)
        if self.generation.learning.reuse is not None:
            self.generation.learning.reuse.check_clock(state.global_step)
        self._begun = state.global_step, self.policy.estimator.step
        self.generation.hold()
        if self.ledger_path is not None and self.trainer.accelerator.is_main_process:
            self.generation.learning.ledger = LedgerWriter(self.ledger_path)
            self.generation.learning.ledger.resume(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raises `UnsupportedError` where TRL trains on something else than what the policy decided."""
        begun, known = self._begun
        steps = state.global_step - begun
        if self.policy.estimator.step == known and steps >= args.steps_per_generation * self.trainer.num_iterations:
            raise UnsupportedError(
                f"TRL {trl.__version__} trained {steps} steps without calling "
                "GRPOTrainer._generate_and_score_completions on the trainer: the policy decided nothing. Install trl "
                "1.14 to 1.16, or a newer budgetalloc."
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Hands histograms and the table of the most expensive prompts to the trackers of `report_to`."""
        if self.generation.learning.reporting is not None and "loss" in (logs or {}):  # not an evaluation, nor the end
            self.generation.learning.reporting.log(state.global_step)

    def _save(self, folder: Path) -> None:
        save_beliefs(folder, self.policy.state_dict(), self.policy.name, self.prompts.fingerprint)
        if self.generation.learning.reuse is not None:
            self.generation.learning.reuse.save(folder)
        if self.generation.learning.reporting is not None:
            self.generation.learning.reporting.save(folder)
