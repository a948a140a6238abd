"""Columns of cells as numbers and ids, and the normal form of the rows of every kind of log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import text_id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError
from budgetalloc.logs.frames import listed
from budgetalloc.logs.records import FAULTS, LARGEST, Notes, Record, as_id

__all__ = [
    "Asked",
    "Bools",
    "clean",
    "hashed",
    "is_id",
    "is_numeric",
    "numbers",
    "records",
    "there",
    "weighted",
]

Bools = NDArray[np.bool_]
_WORDS = {"true": 1.0, "false": 0.0}
_NUMBERS = ("step", "reward", "success", "length", "predicted", "cost")
_LARGEST_REWARD = 1e300  # larger rewards count as infinite, because their sums would overflow


@dataclass(frozen=True)
class Asked:
    """The columns that the user named. The arguments of `Ledger.read` explain them."""

    step: str | None = None
    prompt: str | None = None
    reward: str | Mapping[str, float] | None = None
    success: str | None = None
    length: str | None = None
    settled: dict[tuple[str, ...], Any] = field(default_factory=dict)
    """What the first rows of a table said about its columns, by their names."""

    def weights(self, default: str) -> dict[str, float]:
        """The columns of the reward and their weights."""
        if isinstance(self.reward, Mapping):
            return dict(self.reward)
        return {self.reward or default: 1.0}


def there(frame: pd.DataFrame, argument: str, name: str) -> pd.Series:
    """A column that the user named; raises `InputError` if the log lacks it."""
    if name not in frame.columns:
        raise InputError(
            f"{argument}={name!r}: the log has no column {name!r}, it has "
            f"{listed(list(frame.columns))}."
        )
    return frame[name]


def numbers(values: pd.Series) -> tuple[FloatArray, Bools]:
    """The cells as floats, NaN where there is none, and a mask of the cells that are not
    numbers."""
    cells = values.to_numpy()
    try:
        array = np.array(cells, dtype=np.float64)
        return array, np.zeros(len(array), dtype=bool)
    except FAULTS:
        pass
    array, odd = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    for at, value in enumerate(cells.tolist()):
        text = value.strip().lower() if isinstance(value, str) else value
        try:
            array[at] = (
                np.nan
                if text is None or text == ""
                else _WORDS[text]
                if text in _WORDS
                else float(text)
            )
        except FAULTS:
            odd[at] = True
    return array, odd


def is_numeric(values: pd.Series) -> bool:
    """Whether the cells are floats, or numbers and None."""
    if values.dtype.kind == "f":
        return True
    return bool(
        values.dtype == object and set(map(type, values.tolist())) <= {float, int, type(None)}
    )


def weighted(frame: pd.DataFrame, weights: Mapping[str, float]) -> FloatArray:
    """The weighted sum of several rewards, as in TRL. Missing rewards count as 0; the sum is NaN if
    all are missing.

    >>> weighted(pd.DataFrame({"a": [1.0, np.nan, np.nan], "b": [0.5, 0.5, np.nan]}), {"a": 1, "b": 2})
    array([ 2.,  1., nan])
    """
    matrix = np.stack([frame[name].to_numpy(dtype=np.float64) for name in weights])
    total: FloatArray = np.nansum(matrix * np.array(list(weights.values()))[:, None], axis=0)
    return np.where(np.isnan(matrix).all(axis=0), np.nan, total)


def records(frame: pd.DataFrame) -> Iterator[Record]:
    """The rows as records, without the keys that they lack."""
    names = [str(name) for name in frame.columns]
    for row in zip(*(frame[name].tolist() for name in frame.columns), strict=True):
        yield {
            name: x
            for name, x in zip(names, row, strict=True)
            if not (isinstance(x, float) and np.isnan(x))
        }


_known = lru_cache(maxsize=2**17)(text_id)  # a prompt has many rollouts, and its text may be long


def hashed(prompts: Sequence[Any]) -> list[str | None]:
    """The ids of prompts from their texts or messages, None where there is none."""
    ids: list[str | None] = []
    for value in prompts:
        try:
            empty = (
                value is None or isinstance(value, float) or (isinstance(value, str) and not value)
            )
            ids.append(
                None if empty else _known(value) if isinstance(value, str) else text_id(value)
            )
        except FAULTS:
            ids.append(None)
    return ids


def clean(rows: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """The rows with checked ids and numbers. Rows that cannot be used are left out and counted."""
    out, odd_R = rows.copy(), np.zeros(len(rows), dtype=bool)
    for name in _NUMBERS:
        if name in rows:
            column_R, bad_R = numbers(rows[name])
            out[name] = column_R
            odd_R |= bad_R
    with np.errstate(invalid="ignore"):
        if "step" in out:
            step_R = out["step"].to_numpy()
            odd_R |= ~(np.abs(step_R) <= LARGEST) | (step_R != np.floor(step_R))
        if "length" in out:
            length_R = out["length"].to_numpy()
            odd_R |= np.abs(length_R) > LARGEST
            out["length"] = np.where(length_R >= 0, length_R, np.nan)
    infinite_R = np.abs(out["reward"].to_numpy()) > _LARGEST_REWARD
    out["reward"] = out["reward"].mask(infinite_R)
    ids, named_R = _ids(rows["prompt"].tolist())
    out["prompt"] = pd.Series(ids, dtype=object, index=rows.index)
    notes.note("row without a prompt", int((~named_R).sum()))
    notes.note("broken row", int((named_R & odd_R).sum()))
    kept_R = named_R & ~odd_R
    notes.note("infinite reward", int((infinite_R & kept_R).sum()))
    return out if kept_R.all() else out[kept_R]


def is_id(cell: Any) -> bool:
    """Whether a cell holds the id of a prompt.

    >>> is_id("a"), is_id(3.0), is_id(None), is_id(True)
    (True, True, False, False)
    """
    try:
        return cell is not None and as_id(cell) != ""
    except FAULTS:
        return False


def _ids(cells: list[Any]) -> tuple[list[Any], Bools]:
    if set(map(type, cells)) <= {int, str} and "" not in cells:
        return cells, np.ones(len(cells), dtype=bool)  # the usual case, at C speed
    ids = [as_id(value) if is_id(value) else None for value in cells]
    return ids, np.array([name is not None for name in ids], dtype=bool)
