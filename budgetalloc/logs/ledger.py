"""A whole log in memory."""

import logging
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import check_range
from budgetalloc.errors import InputError, check_array
from budgetalloc.logs.chunk import LARGEST, Chunk, Ints
from budgetalloc.logs.reader import open_log, read_all

_log = logging.getLogger(__name__)


class Ledger(Chunk):
    """The rollouts of a run, one entry per rollout in order of the steps. The columns are those of `Chunk`.

    Columns may be given as arrays or lists: steps, lengths and counts become integers, the others floats, None as NaN.

    Raises:
        InputError: a column that holds anything else, has more than one dimension, or is longer than another.

    >>> import numpy as np
    >>> Ledger(np.array([0, 0, 1]), ["a", "b", "a"], np.array([1.0, 0.0, 1.0]), *np.ones((3, 3)))
    Ledger(3 rollouts of 2 prompts in 2 steps)
    """

    def __post_init__(self) -> None:
        columns: dict[str, Any] = {"ids_R": check_ids(self.ids_R, "ids_R")}
        for name in ("step_R", "lengths_R", "counts_R", "trainer_step_R"):
            if name != "trainer_step_R" or self.trainer_step_R is not None:
                columns[name] = _integers(name, getattr(self, name))
        for name in ("rewards_R", "predicted_R", "success_R"):
            if name != "success_R" or self.success_R is not None:
                columns[name] = _numbers(name, getattr(self, name))
        if self.reward_range is not None:
            columns["reward_range"] = check_range(self.reward_range)
        for name, values in columns.items():
            object.__setattr__(self, name, values)
        super().__post_init__()

    @classmethod
    def read(cls, source: Any, **asked: Any) -> "Ledger":
        """Reads a finished run in any supported format: a ledger, TRL's completions, verl's rollouts, a CSV, and
        others.

        Steps that a resumed run repeated are read once. One logged warning lists the omissions and assumptions. The
        whole log is held in memory, some 120 bytes a rollout: `budgetalloc.logs.reader.open_log` reads a larger log in
        chunks.

        Args:
            source: A file, a folder that holds one log, or a `datasets.Dataset`.
            asked: `kind`, `prompt_id`, `reward`, `success`, `reward_range`, `max_line`, `max_row` and `max_step`, as in
                `budgetalloc.logs.reader.open_log`.

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


def _integers(name: str, values: Any) -> Ints:
    """A column of integers; raises `InputError` for anything else."""
    if isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1:
        return values  # as all readers give it
    what = "one integer a rollout, -1 where a length is not known"
    column = _numbers(name, values, what)
    with np.errstate(invalid="ignore"):
        fits = (np.abs(column) <= LARGEST) & (column == np.floor(column))
    if not fits.all():
        raise InputError(f"{name} holds {column[~fits][0]}: give {what}.")
    return column.astype(np.int64)


def _numbers(name: str, values: Any, what: str = "one number a rollout") -> FloatArray:
    """A column of floats; raises `InputError` for anything else."""
    column = check_array(name, values, what, copy=False)
    if column.ndim != 1:
        raise InputError(f"{name} has shape {column.shape}: give {what}.")
    return column
