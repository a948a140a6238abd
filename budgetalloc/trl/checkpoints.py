"""When TRL's checkpoints are written and read, and which of them are complete."""

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

logger = logging.getLogger(__name__)


def with_save(trainer: Any, also_save: Callable[[Path], None], applies: Callable[[], bool]) -> Callable[..., None]:
    """The trainer's `_save_checkpoint`, before which `also_save` writes into the checkpoint's folder.

    TRL has no callback event for the folder. transformers writes TRAINER_STATE_NAME last, so that a folder with this
    file is complete.

    Args:
        trainer: The trainer whose method is wrapped.
        also_save: Called with the folder.
        applies: Whether to call it.
    """
    save = trainer._save_checkpoint

    @wraps(save)
    def save_all(model: Any, trial: Any) -> None:
        if applies():
            run = Path(trainer._get_output_dir(trial=trial))
            folder = run / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
            # If an older run's folder is overwritten, a mixture of both must not count as a complete checkpoint.
            (folder / TRAINER_STATE_NAME).unlink(missing_ok=True)
            also_save(folder)
        save(model, trial)

    return save_all


def with_load(trainer: Any, also_load: Callable[[Path], None], applies: Callable[[], bool]) -> Callable[..., None]:
    """The trainer's `_load_optimizer_and_scheduler`, after which `also_load` is called with the checkpoint's folder."""
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
        return int(json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))["global_step"])
    except (OSError, ValueError, KeyError, TypeError):
        number = folder.name.rpartition("-")[2]
        return int(number) if number.isdecimal() else None


def last_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The newest complete checkpoint in the folder; None if there is none.

    `trainer.train(resume_from_checkpoint=last_checkpoint(output_dir))` starts a run, or resumes it after a kill. With
    the callback, `resume_from_checkpoint=True` uses this function too, whereas transformers alone takes the newest
    folder, complete or not.
    """
    for folder in _folders(output_dir):
        if _whole(folder):
            return str(folder)
        logger.warning("%s is incomplete, because the run was killed while saving: this checkpoint is skipped.", folder)
    return None


def newest_complete_or_error(output_dir: str) -> str | bool:
    """The meaning of `resume_from_checkpoint=True`: a folder, or True if there is none, for which transformers raises.

    Raises:
        StateError: no checkpoint of the folder was written to its end.
    """
    newest = last_checkpoint(output_dir)
    folders = _folders(output_dir)
    if newest is None and folders:
        raise StateError(
            f"resume_from_checkpoint=True: {folders[0]} is incomplete, because the run was killed or the disk was "
            "full, and there is no older complete checkpoint. Start anew with resume_from_checkpoint=None."
        )
    return newest or True


def _whole(folder: Path) -> bool:
    """Whether transformers has written its own state, which it writes last."""
    try:
        json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # not yet written, or incomplete
        return False
    return True


def _folders(output_dir: str | os.PathLike[str]) -> list[Path]:
    """All checkpoints, newest first."""
    folders = Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    numbered = [(x.name.rpartition("-")[2], x) for x in folders if x.is_dir()]
    return [folder for _, folder in sorted([(int(n), x) for n, x in numbered if n.isdecimal()], reverse=True)]
