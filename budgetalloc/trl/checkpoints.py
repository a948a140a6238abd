"""Checkpoints of TRL: what a policy adds to them, which are complete, and the order of rows after a
resume."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from budgetalloc.errors import StateError

logger = logging.getLogger(__name__)


class SavesBeliefs(Trainer):  # type: ignore[misc]
    """A mixin of trainers that saves and loads what was learned with each checkpoint, for which
    transformers has no callback event. It comes before the trainer's class among the bases.

    Each method takes `own`, the function that it calls in place of the method of its base.
    """

    _budgetalloc: Any = None  # has `_save(folder)` and `_load(folder)`

    def _save_checkpoint(self, model: Any, trial: Any, *, own: Any = None) -> None:
        """Saves it before all else. transformers writes TRAINER_STATE_NAME last, so a folder with
        this file is complete."""
        if self._budgetalloc is not None and self.args.should_save:
            run = Path(self._get_output_dir(trial=trial))
            folder = run / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            # If an older run's folder is overwritten, a mixture of both must not count as a
            # complete checkpoint.
            (folder / TRAINER_STATE_NAME).unlink(missing_ok=True)
            self._budgetalloc._save(folder)
        (own or super()._save_checkpoint)(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None, *, own: Any = None) -> None:
        """Loads it after all else."""
        (own or super()._load_optimizer_and_scheduler)(checkpoint)
        if checkpoint is not None and self._budgetalloc is not None:
            self._budgetalloc._load(Path(checkpoint))


def step_of(folder: Path) -> int | None:
    """The trainer's step of a checkpoint: from transformers' state, else from the folder's name."""
    try:
        state = json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        return int(state["global_step"])
    except (OSError, ValueError, KeyError, TypeError):
        number = folder.name.rpartition("-")[2]
        return int(number) if number.isdecimal() else None


def last_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The newest complete checkpoint in the folder; None if there is none.

    `trainer.train(resume_from_checkpoint=last_checkpoint(output_dir))` starts a run, or resumes it
    after a kill. With the callback, `resume_from_checkpoint=True` does the same. transformers alone
    takes the newest folder, even if it is incomplete.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as run:
    ...     for step in (50, 100):  # a kill left the second without its last file
    ...         (folder := Path(run) / f"checkpoint-{step}").mkdir()
    ...     _ = (Path(run) / "checkpoint-50" / "trainer_state.json").write_text("{}")
    ...     print(Path(last_checkpoint(run)).name)
    checkpoint-50
    """
    for folder in _folders(output_dir):
        try:
            json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # not yet written, or only in part
            logger.warning(
                "%s is incomplete, because the run was killed while saving. It is skipped.", folder
            )
        else:
            return str(folder)
    return None


def newest_complete_or_error(output_dir: str) -> str | bool:
    """The checkpoint for `resume_from_checkpoint=True`; True if there is none, for which
    transformers raises. Raises `StateError` if all are incomplete."""
    newest, folders = last_checkpoint(output_dir), _folders(output_dir)
    if newest is None and folders:
        raise StateError(
            f"resume_from_checkpoint=True: {folders[0]} is incomplete, because the run was killed "
            "or the disk was full, and there is no older complete checkpoint. Start anew with "
            "resume_from_checkpoint=None."
        )
    return newest or True


def _folders(output_dir: str | os.PathLike[str]) -> list[Path]:
    """All checkpoints, newest first."""
    folders = Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    numbered = {x: x.name.rpartition("-")[2] for x in folders if x.is_dir()}
    whole = [x for x, number in numbered.items() if number.isdecimal()]
    return sorted(whole, key=lambda x: int(numbered[x]), reverse=True)


def restore_order(trainer: Any, loader: Any) -> None:
    """Gives the loader of a resumed run the order of the epoch in which the checkpoint was saved.

    transformers skips the batches of that epoch that were trained on. But TRL's `RepeatSampler`
    draws one order per epoch from its generator, and a resumed run starts with a new generator, so
    plain TRL repeats the first epoch's order.
    """
    state = trainer.state
    if state.global_step == 0:
        return
    try:
        steps = max(1, -(-len(loader) // trainer.args.gradient_accumulation_steps))
    except TypeError:  # an iterable dataset
        if (state.epoch or 0) >= 1:
            _other_rows(state, "transformers continues at the start of a pass of the dataset")
        return
    epoch = state.global_step // steps
    if state.global_step >= state.max_steps and epoch < state.num_train_epochs:
        logger.warning(
            "The checkpoint of step %s is that of a finished run (max_steps=%s): transformers "
            "trains one more step when it is resumed. Raise max_steps or num_train_epochs to "
            "continue, or load the model from the checkpoint.",
            state.global_step,
            state.max_steps,
        )
    if epoch == 0 or not getattr(trainer, "shuffle_dataset", True):
        return
    part = loader  # samplers from the outside in; accelerate may wrap batch samplers
    while part is not None:
        generator = getattr(part, "generator", None)
        if type(part).__name__ == "RepeatSampler" and isinstance(generator, torch.Generator):
            for _ in range(epoch):
                torch.randperm(part.num_samples, generator=generator)
            return
        inside = getattr(part, "batch_sampler", None)
        part = getattr(part, "sampler", None) if inside is None else inside
    _other_rows(state, "the trainer's sampler is not TRL's RepeatSampler")


def _other_rows(state: Any, why: str) -> None:
    logger.warning(
        "The checkpoint of step %s lies in epoch %s (counted from 0), whose order of rows cannot "
        "be restored, because %s: this run may train on other rows than an uninterrupted run.",
        state.global_step,
        int(state.epoch or 0),
        why,
    )
