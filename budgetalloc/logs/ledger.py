"""`Ledger`, a whole log in memory."""

import logging
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import check_ids
from budgetalloc.beliefs.rewards import check_range
from budgetalloc.logs.chunk import COLUMNS, Chunk, integer_column, number_column
from budgetalloc.logs.reader import open_log, read_all

__all__ = ["Ledger"]

_log = logging.getLogger(__name__)


class Ledger(Chunk):
    """The rollouts of a run, one entry per rollout, in the order of the steps. The columns are those of `Chunk`.

    Columns may be arrays or lists. Steps, lengths and counts become integers, the others floats, None as NaN.

    Raises:
        InputError: a column holds anything else, has more than one dimension, or is longer than another.

    >>> import numpy as np
    >>> Ledger(np.array([0, 0, 1]), ["a", "b", "a"], np.array([1.0, 0.0, 1.0]), *np.ones((3, 3)))
    Ledger(3 rollouts of 2 prompts in 2 steps)
    """

    def __post_init__(self) -> None:
        columns: dict[str, Any] = {"ids_R": check_ids(self.ids_R, "ids_R")}
        rows = len(columns["ids_R"])
        for name, dtype in COLUMNS.items():
            values = getattr(self, name)
            if values is None and name in ("success_R", "trainer_step_R", "costs_R"):
                continue
            as_read = isinstance(values, np.ndarray) and values.dtype == dtype and values.shape == (rows,)
            check = integer_column if dtype == np.int64 else number_column
            columns[name] = values if as_read else check(name, values, rows)
        if self.reward_range is not None:
            columns["reward_range"] = check_range(self.reward_range)
        for name, values in columns.items():
            object.__setattr__(self, name, values)
        super().__post_init__()

    @classmethod
    def read(cls, source: Any, **asked: Any) -> "Ledger":
        """Reads a finished run in any supported format, such as a ledger, TRL's completions or a CSV file.

        Steps that a resumed run repeated are read once. One logged warning lists what was left out or assumed. The
        whole log is held in memory, some 130 bytes a rollout. To read a larger log in chunks, use
        `budgetalloc.logs.reader.open_log`.

        Args:
            source: A file, a folder that holds one log, or a `datasets.Dataset`.
            asked: `kind`, `prompt_id`, `reward`, `success`, `reward_range`, `max_line`, `max_row` and `max_step`, as in
                `budgetalloc.logs.reader.open_log`.

        Raises:
            InputError: there is no log, there are several (the text lists them), or an argument is out of range.

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
