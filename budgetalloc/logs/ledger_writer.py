"""The writer of a ledger: it appends every rollout of a run to a file."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import check_range, check_rewards
from budgetalloc.errors import (
    InputError,
    check_array,
    check_integer,
    check_type,
    keywords,
    short_repr,
)
from budgetalloc.logs.records import LARGEST


def check_ledger(path: Any, *, writes: bool = True) -> None:
    """Raises `InputError` unless a ledger can be written to this path. None means no ledger. Only a
    process that `writes` it makes the folder, and opens the file for a test.

    >>> check_ledger(5)
    Traceback (most recent call last):
    budgetalloc.errors.InputError: ledger=5 is of type int: give the path of a file such as
    "run/ledger.jsonl", or None.
    """
    if path is None:
        return
    check_type(
        "ledger", path, (str, os.PathLike), 'the path of a file such as "run/ledger.jsonl", or None'
    )
    if not writes:
        return
    try:
        file = Path(path)
        known = file.exists()
        if known and not file.is_file():  # opening a named pipe would wait for a reader
            raise OSError("it is not a regular file")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
        if not known:
            file.unlink()
    # ValueError: a null character; TypeError: a path of bytes
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"ledger={short_repr(os.fspath(path))} cannot be written, {error}: give the path of a "
            "file in a folder that can be written to.",
            argument="ledger",
        ) from error


@keywords
class LedgerWriter:
    """Appends rollouts to a JSON-lines file, one line each. Appended rollouts survive a kill of the
    process.

    A resumed run repeats the steps since its checkpoint. `resume` marks where it starts, and
    `Ledger.read` then takes each step once. No rows are deleted.

    Args:
        path: The file. The writer appends to it if it exists.

    >>> import tempfile
    >>> from budgetalloc.logs.ledger import Ledger
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = LedgerWriter(f"{folder}/ledger.jsonl")
    ...     log.append(0, ["a", "b"], [2.0, float("nan")], [12, 9], [0.5, 0.5], [1, 1],
    ...         reward_range=(0, 2))
    ...     log.append(1, ["a"], [0.0], [11], [0.75], [1], reward_range=(0, 2))
    ...     log.resume(1)
    ...     log.append(1, ["a"], [0.5], [10], [0.75], [1], reward_range=(0, 2), success_R=[0.0])
    ...     ledger = Ledger.read(f"{folder}/ledger.jsonl")
    >>> ledger.frame[["step", "prompt", "reward", "success"]]
       step prompt  reward  success
    0     0      a     2.0      1.0
    1     0      b     NaN      NaN
    2     1      a     0.5      0.0
    >>> ledger.reward_range
    (0.0, 2.0)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # the last range in the file, as far as this writer knows
        self._range: tuple[float, float] | None = None
        if self.path.exists() and not self.path.is_file():
            raise InputError(
                f"path={str(path)!r} is not a regular file: give the path of a file, because a "
                "ledger is read again after a resume.",
                argument="path",
            )
        if self.path.exists() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                cut_off = file.read(1) != b"\n"
            if cut_off:  # the process was killed during a write: end its incomplete line
                self._write("\n")

    def append(
        self,
        step: int,
        ids_R: Sequence[Id],
        rewards_R: ArrayLike,
        lengths_R: ArrayLike,
        predicted_R: ArrayLike,
        counts_R: ArrayLike,
        *,
        success_R: ArrayLike | None = None,
        decision: int | None = None,
        reward_range: tuple[float, float] | None = None,
        costs_R: ArrayLike | None = None,
    ) -> None:
        """Appends the rollouts of one step.

        Args:
            step: The trainer's step, from which `resume` counts.
            ids_R: Prompt of each rollout, R entries.
            rewards_R: Reward, NaN where there was none, shape (R,).
            lengths_R: Tokens, -1 where unknown, shape (R,).
            predicted_R: Predicted success rate before the step, NaN for none, shape (R,).
            counts_R: Rollouts of its group, by default all of its prompt in the step, shape (R,).
            success_R: Success in [0, 1] that the belief learned, NaN for none, shape (R,). Default:
                readers map the reward by `reward_range` and clip it.
            decision: The policy's step, of which an optimizer step may hold several. Default:
                `step`.
            reward_range: Lowest and highest reward in this step. A change is a line in the file.
            costs_R: Cost in the unit of `cost=`, NaN where unknown, shape (R,). Default: none.

        Raises:
            InputError: an argument has the wrong type or length.
            OSError: the disk is full or the file cannot be written. The file then holds nothing of
                this step.
        """
        step = check_integer("step", step, -LARGEST, LARGEST)
        decision = (
            step if decision is None else check_integer("decision", decision, -LARGEST, LARGEST)
        )
        reward_range = None if reward_range is None else check_range(reward_range)
        names = check_ids(ids_R, "ids_R")
        rows = len(names)
        columns: dict[str, list[Any]] = {
            "reward": _no_nan(_numbers("rewards_R", rewards_R, rows)),
            "length": _integers("lengths_R", lengths_R, rows),
            "predicted": _no_nan(np.round(_numbers("predicted_R", predicted_R, rows), 6)),
            "count": _integers("counts_R", counts_R, rows),
        }
        if success_R is not None:
            columns["success"] = _no_nan(check_rewards(success_R, rows, "success_R"))
        if costs_R is not None:
            columns["cost"] = _no_nan(np.round(_numbers("costs_R", costs_R, rows), 6))
        more = {} if decision == step else {"decision": decision}
        text = "".join(
            json.dumps(
                {"step": step, "id": name, **dict(zip(columns, values, strict=True)), **more}
            )
            + "\n"
            for name, *values in zip(names, *columns.values(), strict=True)
        )
        if reward_range is not None and reward_range != self._range:
            text = json.dumps({"reward_range": reward_range}) + "\n" + text
        self._write(text)
        self._range = reward_range or self._range

    def append_domain(self, step: int, domain: str, sums: Mapping[str, float]) -> None:
        """Appends a line of sums over the rollouts of a domain. Readers add up such lines."""
        self._write(json.dumps({"step": step, "domain": domain, **sums}) + "\n")

    def resume(self, step: int) -> None:
        """Marks that the run continues from this step. Readers leave out earlier rows of this step
        and of later ones.

        A run that starts at step 0 in the file of an older run calls this too, and voids all rows
        of the older run.
        """
        step = check_integer("step", step, -LARGEST, LARGEST)
        if self.path.exists() and self.path.stat().st_size:
            self._write(json.dumps({"resumed": step}) + "\n")

    def _write(self, text: str) -> None:
        # Opened for appending without a buffer: the kernel has the bytes when the call returns.
        left = text.encode()
        with self.path.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                # on a full disk, the first write may silently be partial, and the next one raises
                while left:
                    left = left[file.write(left) :]
            except BaseException as error:
                file.truncate(size)  # no step may be incomplete
                if isinstance(error, OSError):
                    raise OSError(
                        error.errno,
                        f"{error.strerror}: the ledger holds all earlier steps completely, and "
                        "nothing of this step. Free some space and resume from the last checkpoint",
                        str(self.path),
                    ) from error
                raise


def _no_nan(column: FloatArray) -> list[float | None]:
    return [None if math.isnan(x) else x for x in column.tolist()]


def _numbers(name: str, values: Any, rows: int, what: str = "one number per rollout") -> FloatArray:
    """A column of `rows` floats, None as NaN; raises `InputError` for anything else."""
    column = check_array(name, values, what, copy=False)
    if column.shape != (rows,):
        found = f"{len(column)} entries" if column.ndim == 1 else f"shape {column.shape}"
        raise InputError(
            f"{name} has {found}, and there are {rows} rollouts: give {what}.", argument=name
        )
    return column


def _integers(name: str, values: Any, rows: int) -> list[int]:
    what = "one integer a rollout, -1 where a length is not known"
    column = _numbers(name, values, rows, what)
    wrong = column[~((np.abs(column) <= LARGEST) & (column % 1 == 0))]
    if len(wrong):
        raise InputError(f"{name} holds {wrong[0]}: give {what}.", argument=name)
    return list(map(int, column.tolist()))
