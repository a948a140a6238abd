"""Beliefs in TRL's checkpoints, and which of those were written to their end."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.errors import StateError
from budgetalloc.policies import Policy

logger = logging.getLogger(__name__)
STATE_FILE = "budgetalloc_state.npz"


def save_beliefs(folder: Path, state: dict[str, Any], policy: str, dataset: str | None) -> None:
    """Writes the state of the policy of this name into a checkpoint."""
    save_state(folder / STATE_FILE, state, {"policy": policy, "dataset": dataset})


def load_beliefs(folder: Path, policy: Policy, dataset: str | None, allow_dataset_change: bool) -> None:
    """Gives the policy the state that the checkpoint holds; a warning where it holds none, or another policy's.

    Raises:
        StateError: a damaged or foreign file, or that of another dataset.
    """
    path = folder / STATE_FILE
    if not path.exists():
        logger.warning("%s does not exist: the checkpoint was made without budgetalloc. Beliefs start cold.", path)
        return
    state, about = load_state(path)
    if about.get("dataset") != dataset and not allow_dataset_change:
        raise StateError(
            f"{path} belongs to the train dataset {about.get('dataset')}, this trainer has {dataset} (rows and a hash "
            "of the prompts). Train on the same dataset; or pass allow_dataset_change=True to keep the beliefs about "
            "prompts that both have; or delete the file to start cold."
        )
    if about.get("policy") != policy.name:
        logger.warning(
            "%s was saved by %s, this trainer has %s, which goes on with its beliefs. If that is not meant, attach the "
            "policy that saved it.",
            path,
            about.get("policy"),
            policy.name,
        )
    policy.load_state_dict(state)


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
