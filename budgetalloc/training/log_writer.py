"""Writes a run's ledger, and next to it the texts of its prompts, its seconds and its
evaluations."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.logs.ledger_writer import LedgerWriter
from budgetalloc.logs.progress import ProgressWriter
from budgetalloc.logs.prompt_texts import TextsWriter
from budgetalloc.logs.records import first
from budgetalloc.policies.rollouts import Rollouts

logger = logging.getLogger(__name__)


class LogWriter:
    """Appends each step it is called with to a ledger and the files next to it.

    Args:
        path: The ledger.
        first_step: The trainer's next step. Lines of this and of later steps in the file become
            void.
        texts_of: Returns the known texts of prompts by id; each text is written once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        first_step: int,
        texts_of: Callable[[Sequence[Id]], Mapping[Id, str]],
    ) -> None:
        self.ledger, self.texts, self.texts_of = LedgerWriter(path), TextsWriter(path), texts_of
        steps = [
            record["step"]
            for record in first(self.ledger.path)
            if isinstance(record.get("step"), int)
        ]
        if steps and steps[0] >= first_step:
            logger.warning(
                "The ledger %s holds an earlier run. This run begins anew in the same file, so "
                "reports of it show this run only; the older rows stay in the file. Give each run "
                "its own path to report both.",
                path,
            )
        self.ledger.resume(first_step)
        self.progress = ProgressWriter(path, first_step)

    def __call__(self, batch: Rollouts) -> None:
        append(self.ledger, batch)
        self.texts.add(batch.ids_R, self.texts_of)
        self.progress.step(batch.step, batch.policy_step)


def append(ledger: LedgerWriter, batch: Rollouts) -> None:
    """Appends a step to the ledger, one line per rollout. Rollouts with a hint have the id "ID
    (hinted)" and no prediction."""
    hinted = batch.hinted_R.tolist()
    names_R = [
        f"{name} (hinted)" if with_hint else name
        for name, with_hint in zip(batch.ids_R, hinted, strict=True)
    ]
    predicted_R = np.where(batch.hinted_R, np.nan, batch.belief_R.mean)
    ledger.append(
        batch.step,
        names_R,
        batch.rewards_R,
        batch.lengths_R,
        predicted_R,
        batch.counts_R,
        success_R=batch.success_R,
        decision=batch.policy_step,
        reward_range=batch.reward_range,
        costs_R=batch.costs_R,
    )
