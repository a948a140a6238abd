"""A whole log in memory."""

import logging
from typing import Any

from budgetalloc.logs.base import Chunk
from budgetalloc.logs.open import open_log, read_all

_log = logging.getLogger(__name__)


class Ledger(Chunk):
    """The rollouts of a run, one entry per rollout in order of the steps. The columns are those of `Chunk`.

    >>> import numpy as np
    >>> Ledger(np.array([0, 0, 1]), ["a", "b", "a"], np.array([1.0, 0.0, 1.0]), *np.ones((3, 3)))
    Ledger(3 rollouts of 2 prompts in 2 steps)
    """

    @classmethod
    def read(cls, source: Any, **asked: Any) -> "Ledger":
        """Reads a finished run in any supported format: a ledger, TRL's completions, verl's rollouts, a CSV, and
        others.

        Steps that a resumed run repeated are read once. One logged warning lists the omissions and assumptions. The
        whole log is held in memory, some 120 bytes a rollout: `budgetalloc.logs.open.open_log` reads a larger log in
        chunks.

        Args:
            source: A file, a folder that holds one log, or a `datasets.Dataset`.
            asked: `kind`, `prompt_id`, `reward`, `success`, `reward_range`, `max_line`, `max_row` and `max_step`, as in
                `budgetalloc.logs.open.open_log`.

        Raises:
            InputError: there is no log, or there are several (the text lists them), or an argument is out of range.

        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "counts.csv")
        ...     _ = file.write_text("step,prompt_id,successes,rollouts\\n0,a,1,4\\n0,b,4,4\\n")
        ...     Ledger.read(file)
        Ledger(8 rollouts of 2 prompts in 1 steps)
        """
        reading = open_log(source, **asked)
        whole = read_all(reading)
        if reading.notes:
            _log.warning("%r: %s", reading, "; ".join(f"{text}: {count}" for text, count in reading.notes.items()))
        return cls(**vars(whole))
