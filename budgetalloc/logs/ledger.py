"""The one log: every rollout of a run, appended as it happens."""

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray

_log = logging.getLogger(__name__)


class LedgerWriter:
    """Appends rollouts to a JSON-lines file, a line each; what was appended survives a kill of the process.

    After a resume, steps since the checkpoint run again: `resume` says from which step, and `Ledger.read` then takes
    each step once. Nothing is ever deleted.

    Args:
        path: The file; appended to if it exists.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = LedgerWriter(f"{folder}/ledger.jsonl")
    ...     log.append(0, ["a", "b"], [1.0, float("nan")], [12, 9], [0.5, 0.5], [1, 1])
    ...     log.append(1, ["a"], [0.0], [11], [0.75], [1])
    ...     log.resume(1)
    ...     log.append(1, ["a"], [1.0], [10], [0.75], [1])
    ...     ledger = Ledger.read(f"{folder}/ledger.jsonl")
    >>> ledger.step_R, ledger.ids_R, ledger.rewards_R
    (array([0, 0, 1]), ['a', 'b', 'a'], array([ 1., nan,  1.]))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                torn = file.read(1) != b"\n"
            if torn:  # a kill in the middle of a write: keep the torn line apart from the next one
                self._write("\n")

    def append(
        self,
        step: int,
        ids_R: Sequence[Id],
        rewards_R: ArrayLike,
        lengths_R: ArrayLike,
        predicted_R: ArrayLike,
        counts_R: ArrayLike,
    ) -> None:
        """One step's rollouts: prompt id, reward, tokens, predicted success rate (NaN: none), count of its prompt."""
        columns = (np.asarray(x).tolist() for x in (rewards_R, lengths_R, predicted_R, counts_R))
        rows = zip(ids_R, *columns, strict=True)
        self._write(
            "".join(
                json.dumps(
                    {
                        "step": step,
                        "id": name,
                        "reward": None if math.isnan(reward) else reward,
                        "length": length,
                        "predicted": None if math.isnan(predicted) else round(predicted, 6),
                        "count": count,
                    }
                )
                + "\n"
                for name, reward, length, predicted, count in rows
            )
        )

    def resume(self, step: int) -> None:
        """Says that the run goes on from this step: rows of it and of later ones written so far are void.

        A run that starts at 0 in the file of an older one says so too.
        """
        if self.path.exists() and self.path.stat().st_size:
            self._write(json.dumps({"resumed": int(step)}) + "\n")

    def _write(self, text: str) -> None:
        # Written to a file opened for appending: the kernel has it when the call returns, whatever becomes of us.
        left = text.encode()
        with self.path.open("ab", buffering=0) as file:
            start = file.seek(0, os.SEEK_END)
            try:
                while left:  # a full disk takes a part of it without a word, and refuses the next
                    left = left[file.write(left) :]
            except BaseException as error:
                file.truncate(start)  # no step in part
                if isinstance(error, OSError):
                    raise OSError(
                        error.errno,
                        f"{error.strerror}: the ledger holds every step before this one, whole, and nothing of this "
                        "one. Free some space and resume from the last checkpoint",
                        str(self.path),
                    ) from error
                raise


@dataclass(frozen=True, eq=False)
class Ledger:
    """What a run generated, one entry a rollout in order.

    Args:
        step_R: Training step of each rollout.
        ids_R: Its prompt.
        rewards_R: Its reward, NaN where there was none.
        lengths_R: Its tokens.
        predicted_R: The success rate believed before the step.
        counts_R: Rollouts that its prompt had in the step.
        broken: Lines that could not be read, such as one torn by a kill.
    """

    step_R: NDArray[np.int64]
    ids_R: list[Id]
    rewards_R: FloatArray
    lengths_R: NDArray[np.int64]
    predicted_R: FloatArray
    counts_R: NDArray[np.int64]
    broken: int = 0

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        kind: str | None = None,
        prompt_id: str | None = None,
        reward: str | Mapping[str, float] | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> "Ledger":
        """A finished run, whatever wrote it: a ledger, TRL's completions, verl's rollouts, a CSV of counts, and others.

        Steps that a resumed run repeated are taken once. What was left out or assumed is logged as one warning. It is
        all in memory, some 100 bytes a rollout: `budgetalloc.logs.open.open_log` reads a larger log in chunks.

        Args:
            source: A file, a folder that holds one log, or a `datasets.Dataset`.
            kind, prompt_id, reward, reward_range: As in `budgetalloc.logs.open.open_log`.

        Raises:
            InputError: no log there, several (the text lists them), or arguments out of range.
        """
        from budgetalloc.logs.open import open_log, read_all  # deferred: readers make ledgers

        reading = open_log(source, kind=kind, prompt_id=prompt_id, reward=reward, reward_range=reward_range)
        ledger = read_all(reading)
        if reading.notes:
            _log.warning("%r: %s", reading, "; ".join(f"{text}: {count}" for text, count in reading.notes.items()))
        return ledger
