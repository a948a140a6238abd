"""Writing the ledger: every rollout of a run is appended to a file as it happens."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import Id


class LedgerWriter:
    """Appends rollouts to a JSON-lines file, one line each; what was appended survives a kill of the process.

    After a resume, the steps since the checkpoint run again: `resume` says from which step, and `Ledger.read` then
    takes each step once. Nothing is ever deleted.

    Args:
        path: The file; the writer appends to it if it exists.

    >>> import tempfile
    >>> from budgetalloc.logs.ledger import Ledger
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
            if torn:  # a kill during a write: a new line keeps the torn one apart from the next
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
        """Appends the rollouts of one step: prompt, reward, tokens, predicted success (NaN: none), prompt's count."""
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
        """Marks that the run continues from this step: rows of this step and of later ones written so far are void.

        A run that starts at step 0 in the file of an older run calls this too.
        """
        if self.path.exists() and self.path.stat().st_size:
            self._write(json.dumps({"resumed": int(step)}) + "\n")

    def _write(self, text: str) -> None:
        # The file is opened for appending without a buffer: the kernel has the bytes when the call returns.
        left = text.encode()
        with self.path.open("ab", buffering=0) as file:
            start = file.seek(0, os.SEEK_END)
            try:
                while left:  # a full disk may take a part silently, and refuses the next
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
