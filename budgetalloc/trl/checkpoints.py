"""Hooks into TRL's saving and loading of checkpoints, and the search for complete checkpoints."""

import json
import logging
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from budgetalloc.errors import StateError

__all__ = ["last_checkpoint", "newest_complete_or_error", "step_of", "with_load", "with_save"]

logger = logging.getLogger(__name__)


def with_save(
    trainer: Any, also_save: Callable[[Path], None], applies: Callable[[], bool]
) -> Callable[..., None]:
    """Wraps the trainer's `_save_checkpoint`: `also_save` writes into the checkpoint's folder
    first, if `applies()`.

    TRL has no callback event for this. transformers writes TRAINER_STATE_NAME last, so a folder
    with this file is complete.
    """
    save = trainer._save_checkpoint

    @wraps(save)
    def save_all(model: Any, trial: Any) -> None:
        if applies():
            run = Path(trainer._get_output_dir(trial=trial))
            folder = run / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
            # If an older run's folder is overwritten, a mixture of both must not count as a
            # complete checkpoint.
            (folder / TRAINER_STATE_NAME).unlink(missing_ok=True)
            also_save(folder)
        save(model, trial)

    return save_all


def with_load(
    trainer: Any, also_load: Callable[[Path], None], applies: Callable[[], bool]
) -> Callable[..., None]:
    """Wraps the trainer's `_load_optimizer_and_scheduler`: `also_load` reads the folder afterwards,
    if `applies()`."""
    restore = trainer._load_optimizer_and_scheduler

    @wraps(restore)
    def restore_all(checkpoint: str | None) -> None:
        restore(checkpoint)
        if checkpoint is not None and applies():
            also_load(Path(checkpoint))

    return restore_all


def step_of(folder: Path) -> int | None:
    """The trainer's step of a checkpoint: from transformers' state, else from the folder's name."""
    try:
        return int(
            json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))["global_step"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        number = folder.name.rpartition("-")[2]
        return int(number) if number.isdecimal() else None


def last_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The newest complete checkpoint in the folder; None if there is none.

    `trainer.train(resume_from_checkpoint=last_checkpoint(output_dir))` starts a run, or resumes it
    after a kill. With the callback, `resume_from_checkpoint=True` does the same. transformers alone
    takes the newest folder, even if it is incomplete.
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
    transformers raises.

    Raises:
        StateError: all checkpoints of the folder are incomplete.
    """
    newest = last_checkpoint(output_dir)
    folders = _folders(output_dir)
    if newest is None and folders:
        raise StateError(
            f"resume_from_checkpoint=True: {folders[0]} is incomplete, because the run was killed "
            "or the disk was "
            "full, and there is no older complete checkpoint. Start anew with "
            "resume_from_checkpoint=None."
        )
    return newest or True


def _folders(output_dir: str | os.PathLike[str]) -> list[Path]:
    """All checkpoints, newest first."""
    folders = Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    numbered = [(x.name.rpartition("-")[2], x) for x in folders if x.is_dir()]
    return [
        folder
        for _, folder in sorted([(int(n), x) for n, x in numbered if n.isdecimal()], reverse=True)
    ]
