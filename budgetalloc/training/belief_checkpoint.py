"""Beliefs in a trainer's checkpoints."""

import logging
from pathlib import Path
from typing import Any

from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.errors import StateError
from budgetalloc.training.session import Session

__all__ = ["STATE_FILE", "load_beliefs", "save_beliefs"]

logger = logging.getLogger(__name__)
STATE_FILE = "budgetalloc_state.npz"


def save_beliefs(
    folder: Path, session: Session, dataset: str | None, trainer_step: int, **more: Any
) -> None:
    """Writes the beliefs, the costs, the mixture and the definition of success of a session into a
    checkpoint.

    Args:
        folder: The checkpoint.
        session: The session.
        dataset: The fingerprint of the train dataset.
        trainer_step: The trainer's step at the checkpoint, which `load_beliefs` compares.
        more: More facts to save, in JSON types.
    """
    state, learned = session.state()
    about: dict[str, Any] = {
        "policy": session.policy.name,
        "dataset": dataset,
        "trainer_step": trainer_step,
    }
    save_state(folder / STATE_FILE, state, about | learned | more)


def load_beliefs(
    folder: Path,
    session: Session,
    dataset: str | None,
    allow_dataset_change: bool,
    trainer_step: int | None,
) -> dict[str, Any]:
    """Loads what `save_beliefs` wrote; warns if the checkpoint has no beliefs, or those of another
    policy.

    Args:
        folder: The checkpoint.
        session: The session that gets the state.
        dataset: The fingerprint of the train dataset.
        allow_dataset_change: Whether the state of another dataset is accepted.
        trainer_step: The trainer's step of the checkpoint, if known.

    Returns:
        The facts saved with the state; empty if there are none.

    Raises:
        StateError: the file is damaged or foreign, or belongs to another dataset. The session has
            not changed then.
    """
    path, policy = folder / STATE_FILE, session.policy
    if not path.exists():
        logger.warning(
            "%s does not exist: the checkpoint was made without budgetalloc. Beliefs start cold.",
            path,
        )
        return {}
    state, about = load_state(path)
    if about.get("dataset") != dataset and not allow_dataset_change:
        raise StateError(
            f"{path} belongs to the train dataset {about.get('dataset')}, and this trainer has "
            f"{dataset} (rows and a "
            "hash of the prompts). Train on the same dataset; or pass allow_dataset_change=True to "
            "keep the beliefs "
            "about prompts that both have; or delete the file to start with cold beliefs."
        )
    if about.get("policy") != policy.name:
        logger.warning(
            "%s was saved by the policy %s, and this trainer has %s, which continues with the "
            "saved beliefs. If that "
            "is not intended, attach the policy that saved the file.",
            path,
            about.get("policy"),
            policy.name,
        )
    saved_at = about.get("trainer_step")
    if saved_at is not None and trainer_step is not None and saved_at != trainer_step:
        logger.warning(
            "%s was saved at step %s of the trainer, and the checkpoint is of step %s: the beliefs "
            "are from another "
            "step or another run. If that is not intended, resume from a checkpoint whose files "
            "belong together.",
            path,
            saved_at,
            trainer_step,
        )
    session.restore(state, about)
    return about
