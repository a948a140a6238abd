"""Beliefs in a trainer's checkpoints."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.errors import InputError, StateError
from budgetalloc.policies import Policy
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session

logger = logging.getLogger(__name__)
STATE_FILE = "budgetalloc_state.npz"


def keep_texts(policy: Policy, prompts: Prompts) -> None:
    """Keeps hashes of the texts of the prompts that the policy has beliefs about, for
    `check_texts`."""
    known = policy.estimator.texts
    new = [name for name in policy.estimator.ids() if name not in known]
    policy.estimator.texts = {**known, **prompts.hashes(new)}


def check_texts(known: Mapping[Id, int], prompts: Prompts, whose: str) -> None:
    """Raises `InputError` if a prompt has another text than when `whose` beliefs learned about it,
    of which `known` are the hashes from `keep_texts`."""
    now = prompts.hashes(list(known)) if known else {}
    others = [name for name, text in now.items() if text != known[name]]
    if others:
        raise InputError(
            f"{prompts.column}={others[0]!r} of the train dataset names another prompt than in the "
            f"dataset from which {whose} learned, and so do {len(others) - 1:,} others. A belief "
            "is about a name and a text: give other prompts other names, or start with a new "
            "policy and without the beliefs of the checkpoint.",
            argument="prompt_id",
        )


def save_beliefs(
    folder: Path, session: Session, prompts: Prompts, trainer_step: int, **more: Any
) -> None:
    """Writes all that a session has learned into the folder of a checkpoint at this step of the
    trainer, and more facts in JSON types."""
    state = session.state()
    keep_texts(session.policy, prompts)
    texts = session.policy.estimator.texts
    state["texts"] = {"ids": list(texts), "hashes": np.array([*texts.values()], dtype=np.int64)}
    about: dict[str, Any] = {
        "policy": session.policy.name,
        "dataset": prompts.fingerprint,
        "trainer_step": trainer_step,
    }
    save_state(folder / STATE_FILE, state, about | more)


def load_beliefs(
    folder: Path,
    session: Session,
    prompts: Prompts,
    allow_dataset_change: bool,
    trainer_step: int | None,
) -> dict[str, Any]:
    """Loads what `save_beliefs` wrote, and returns the facts saved with it, none if the checkpoint
    has no beliefs. Warns then, and if they are of another policy or step.

    Raises:
        StateError: the file is damaged or foreign, or belongs to another dataset. The session has
            not changed then. InputError: a prompt has another text than in the run that saved it.
    """
    path, policy = folder / STATE_FILE, session.policy
    if not path.exists():
        logger.warning(
            "%s does not exist: the checkpoint was made without budgetalloc. Beliefs start cold.",
            path,
        )
        return {}
    state, about = load_state(path)
    dataset, texts = prompts.fingerprint, state.pop("texts", {"ids": [], "hashes": []})
    known = dict(zip(texts["ids"], map(int, texts["hashes"]), strict=True))
    check_texts(known, prompts, str(path))
    if about.get("dataset") != dataset and not allow_dataset_change:
        raise StateError(
            f"{path} belongs to the train dataset {about.get('dataset')}, and this trainer has "
            f"{dataset} (rows and a hash of the prompts). Train on the same dataset; or pass "
            "allow_dataset_change=True to keep the beliefs about prompts that both have; or delete "
            "the file to start with cold beliefs."
        )
    if about.get("policy") != policy.name:
        logger.warning(
            "%s was saved by the policy %s, and this trainer has %s, which continues with the "
            "saved beliefs. If that is not intended, attach the policy that saved the file.",
            path,
            about.get("policy"),
            policy.name,
        )
    saved_at = about.get("trainer_step")
    if saved_at is not None and trainer_step is not None and saved_at != trainer_step:
        logger.warning(
            "%s was saved at step %s of the trainer, and the checkpoint is of step %s: the beliefs "
            "are from another step or another run. If that is not intended, resume from a "
            "checkpoint whose files belong together.",
            path,
            saved_at,
            trainer_step,
        )
    session.restore(about | state)  # files of 0.4 have the definition of success in `about`
    policy.estimator.texts = known
    return about
