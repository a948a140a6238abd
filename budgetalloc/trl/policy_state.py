"""Saves and loads everything that a run with a policy has learned, in the trainer's checkpoints."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from budgetalloc.beliefs.state import unchanged_on_error
from budgetalloc.training.belief_checkpoint import load_beliefs, save_beliefs
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session
from budgetalloc.trl.checkpoints import step_of
from budgetalloc.trl.experimental.response_reuse import Reuse
from budgetalloc.trl.trackers import Trackers

__all__ = ["PolicyState"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PolicyState:
    """What a checkpoint holds in addition to TRL's own state: parts of an
    `AdaptiveGRPOCallback`."""

    trainer: Any
    session: Session
    prompts: Prompts
    reuse: Reuse | None
    trackers: Trackers | None
    allow_dataset_change: bool

    def save(self, folder: Path) -> None:
        """Writes all parts into a checkpoint's folder."""
        save_beliefs(folder, self.session, self.prompts.fingerprint, self.trainer.state.global_step)
        if self.reuse is not None:
            self.reuse.save(folder)
        if self.trackers is not None:
            self.trackers.save(folder)

    def load(self, checkpoint: Path) -> None:
        """Restores the parts that the checkpoint has; raises `StateError`, and changes nothing, if
        one does not fit."""
        fingerprint, step = self.prompts.fingerprint, step_of(checkpoint)
        buffers = [] if self.reuse is None else [self.reuse.buffer]
        costs = [] if self.trackers is None else [self.trackers.prompt_costs]
        with unchanged_on_error(*buffers, *costs):
            if self.reuse is not None and not self.reuse.load(checkpoint):
                logger.warning("%s has no state of a buffer: the buffer starts empty.", checkpoint)
            if self.trackers is not None:
                self.trackers.load(checkpoint)
            load_beliefs(checkpoint, self.session, fingerprint, self.allow_dataset_change, step)
