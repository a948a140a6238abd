"""The callback that lets a policy decide the rollout counts of TRL's `GRPOTrainer`, step by step."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from budgetalloc.advantages import Baseline, Scale, Weight
from budgetalloc.errors import StateError
from budgetalloc.ledger import LedgerWriter
from budgetalloc.policies import Policy, adaptive
from budgetalloc.state import load_state, save_state
from budgetalloc.trl.generation import Generation
from budgetalloc.trl.options import Options
from budgetalloc.trl.prompts import Prompts
from budgetalloc.trl.support import check_only_one, check_served, check_trainer, warn_unaligned_saves

logger = logging.getLogger(__name__)
STATE_FILE = "budgetalloc_state.npz"


class AdaptiveGRPOCallback(TrainerCallback):  # type: ignore[misc]
    """Lets an allocation policy decide how many rollouts each prompt gets.

    `trainer.add_callback(AdaptiveGRPOCallback(trainer))` is all that a user adds. Counts are decided when completions
    are about to be generated, from all rewards seen so far. The rows of a generation batch stay as many as
    `GRPOConfig` says; only whose they are changes. Evaluation is untouched. With `candidates` other than 1 the
    trainer's loader still sets the pace: an epoch is as many steps as without the callback, not a visit to every
    prompt.

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
        ledger: A file to which every rollout is appended; see `budgetalloc.ledger`.
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
        }
        self.options = Options.resolve(self.policy.needs, trainer.scale_rewards, given)
        self.prompts = Prompts(trainer.train_dataset, prompt_id)
        check_served(trainer, self.options, self.prompts)
        # A contradiction between floor, cap and quantum shows now, not after an hour of loading.
        self.options.budget(trainer.args.generation_batch_size, 1, trainer.num_generations)
        self.generation = Generation(trainer, self.policy, self.prompts, self.options)
        self.ledger_path = ledger
        self.allow_dataset_change = allow_dataset_change
        self._load_with(trainer)

    def _load_with(self, trainer: Any) -> None:
        """Loads the policy's state where TRL loads its own extra state: callbacks are not told the folder."""
        restore = trainer._load_optimizer_and_scheduler

        def restore_all(checkpoint: str | None) -> None:
            restore(checkpoint)
            if checkpoint is not None:
                self._load(Path(checkpoint) / STATE_FILE)

        trainer._load_optimizer_and_scheduler = restore_all

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Takes hold of generation and scoring for the time of the training."""
        check_only_one(self.trainer, self)
        warn_unaligned_saves(self.trainer)
        if self.ledger_path is not None and self.trainer.accelerator.is_main_process:
            self.generation.learning.ledger = LedgerWriter(self.ledger_path)
            if state.global_step:
                self.generation.learning.ledger.resume(state.global_step)
        self.generation.hold()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Gives the trainer its own methods back."""
        self.generation.release()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Writes the policy's state into the checkpoint that was just made."""
        if args.should_save:
            folder = Path(self.trainer._get_output_dir(trial=None)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            about = {"policy": self.policy.name, "dataset": self.prompts.fingerprint}
            save_state(folder / STATE_FILE, self.policy.state_dict(), about)

    def _load(self, path: Path) -> None:
        if not path.exists():
            logger.warning(
                "%s does not exist: the checkpoint was made without this callback, or the run was killed between the "
                "two. Beliefs start cold.",
                path,
            )
            return
        state, about = load_state(path)
        here = self.prompts.fingerprint
        if about.get("dataset") != here and not self.allow_dataset_change:
            raise StateError(
                f"{path} belongs to the train dataset {about.get('dataset')}, this trainer has {here} (rows and "
                "a hash of the prompts). Train on the same dataset; or pass allow_dataset_change=True to keep the "
                "beliefs about prompts that both have; or delete the file to start cold."
            )
        self.policy.load_state_dict(state)
