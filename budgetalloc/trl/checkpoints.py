"""Which of TRL's checkpoints were written to their end."""

import json
import logging
import os
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from budgetalloc.errors import StateError

logger = logging.getLogger(__name__)


def last_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The newest checkpoint in the folder that was written to its end; None where there is none.

    `trainer.train(resume_from_checkpoint=last_checkpoint(output_dir))` starts a run, and goes on with it whenever it
    was killed. With the callback `resume_from_checkpoint=True` uses it too, where transformers alone takes the newest
    folder, whole or not.
    """
    for folder in _folders(output_dir):
        if _whole(folder):
            return str(folder)
        logger.warning("%s was not written to its end, as the run was killed while saving: it is left out.", folder)
    return None


def whole_or_refused(output_dir: str) -> str | bool:
    """What `resume_from_checkpoint=True` stands for: a folder, or True where there is none and transformers says so.

    Raises:
        StateError: no checkpoint of the folder was written to its end.
    """
    found = last_checkpoint(output_dir)
    folders = _folders(output_dir)
    if found is None and folders:
        raise StateError(
            f"resume_from_checkpoint=True: {folders[0]} was not written to its end, because the run was killed or the "
            "disk was full, and there is no older checkpoint that was. Start anew with resume_from_checkpoint=None."
        )
    return found or True


def _whole(folder: Path) -> bool:
    """Whether transformers has written its own state, which comes last."""
    try:
        json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # not begun, or torn
        return False
    return True


def _folders(output_dir: str | os.PathLike[str]) -> list[Path]:
    """All checkpoints, newest first."""
    found = Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    numbered = [(x.name.rpartition("-")[2], x) for x in found if x.is_dir()]
    return [folder for _, folder in sorted([(int(n), x) for n, x in numbered if n.isdecimal()], reverse=True)]
