"""A whole log in memory."""

import logging
from typing import Any

import numpy as np

from budgetalloc.logs.base import Chunk, Reward
from budgetalloc.logs.open import open_log, read_all

_log = logging.getLogger(__name__)


class Ledger(Chunk):
    """What a run generated, one entry a rollout in order of its steps. The columns are those of `Chunk`.

    >>> Ledger(np.array([0, 0, 1]), ["a", "b", "a"], np.array([1.0, 0.0, 1.0]), *np.ones((3, 3)))
    Ledger(3 rollouts of 2 prompts in 2 steps)
    """

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        kind: str | None = None,
        prompt_id: str | None = None,
        reward: Reward = None,
        reward_range: tuple[float, float] | None = None,
    ) -> "Ledger":
        """Reads a finished run, whatever wrote it: a ledger, TRL's completions, verl's rollouts, a CSV, and others.

        Steps that a resumed run repeated are taken once. One warning is logged that lists what was left out or assumed.
        The whole log is held in memory, some 100 bytes a rollout: `budgetalloc.logs.open.open_log` reads a larger log
        in chunks.

        Args:
            source: A file, a folder that holds one log, or a `datasets.Dataset`.
            kind, prompt_id, reward, reward_range: As in `budgetalloc.logs.open.open_log`.

        Raises:
            InputError: there is no log, or there are several (the text lists them), or an argument is out of range.
        """
        reading = open_log(source, kind=kind, prompt_id=prompt_id, reward=reward, reward_range=reward_range)
        whole = read_all(reading)
        if reading.notes:
            _log.warning("%r: %s", reading, "; ".join(f"{text}: {count}" for text, count in reading.notes.items()))
        return cls(**vars(whole))

    def __repr__(self) -> str:
        prompts, steps = len(set(self.ids_R)), len(np.unique(self.step_R))
        return f"Ledger({len(self.ids_R):,} rollouts of {prompts:,} prompts in {steps:,} steps)"
