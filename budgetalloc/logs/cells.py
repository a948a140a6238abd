"""Cells of a log as numbers and as ids of prompts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, nearest
from budgetalloc.logs.records import FAULTS, Record, as_id

OWN = "budgetalloc: "
"""Comes before the name of a column that a kind of log needs later."""
_WORDS = {"true": 1.0, "false": 0.0, "": np.nan}


@dataclass(frozen=True)
class Asked:
    """The columns that the user named. The arguments of `Ledger.read` explain them."""

    step: str | None = None
    prompt: str | None = None
    reward: str | Mapping[str, float] | None = None
    success: str | None = None
    length: str | None = None


def listed(names: Iterable[Any]) -> str:
    """The names of columns for the text of an error, at most 30 of them."""
    known = [name for name in map(str, names) if not name.startswith(OWN)]
    short = [name if len(name) <= 80 else f"{name[:77]}..." for name in known]
    return f"{short[:30]}" + (f" and {len(short) - 30:,} more" if len(short) > 30 else "")


def there(frame: pd.DataFrame, argument: str, name: str) -> str:
    """The name of a column that the user named; raises `InputError` if the log lacks it."""
    if name not in frame.columns:
        raise InputError(
            f"{argument}={name!r}: the log has no such column{nearest(name, frame.columns)} It has "
            f"{listed(frame.columns)}.",
            argument=argument,
        )
    return name


def numbers(values: pd.Series) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The cells as floats, NaN where there is none, and a mask of cells that are no numbers."""
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
            if text is not None:
                array[at] = _WORDS[text] if text in _WORDS else float(text)
        except FAULTS:
            odd[at] = True
    return array, odd


def is_numeric(values: pd.Series) -> bool:
    """Whether the cells are floats, or numbers and None."""
    return values.dtype.kind == "f" or (
        values.dtype == object and set(map(type, values.tolist())) <= {float, int, type(None)}
    )


def weighted(scores: pd.DataFrame, weights: Mapping[str, float]) -> FloatArray:
    """The weighted sum of several rewards, as in TRL. Missing rewards count as 0; the sum is NaN if
    all are missing.

    >>> weighted(pd.DataFrame({"a": [1.0, np.nan, np.nan], "b": [0.5, 0.5, np.nan]}),
    ...     {"a": 1, "b": 2})
    array([ 2.,  1., nan])
    """
    total = scores[[*weights]].mul(pd.Series(weights)).sum(axis=1, min_count=1)
    return np.asarray(total, dtype=np.float64)


def records(frame: pd.DataFrame) -> Iterator[Record]:
    """The rows as records, without the keys that they lack."""
    names = [str(name) for name in frame.columns]
    for row in zip(*(frame[name].tolist() for name in frame.columns), strict=True):
        pairs = zip(names, row, strict=True)
        yield {name: x for name, x in pairs if not (isinstance(x, float) and x != x)}


_hash = lru_cache(maxsize=2**17)(text_id)  # a prompt has many rollouts, and its text may be long


def known_id(cell: Any, *, is_text: bool = False) -> Id | None:
    """The id of a prompt in a cell, None if there is none. Texts and messages are hashed.

    >>> known_id("a"), known_id(3.0), known_id(None), known_id("2 + 2 =", is_text=True)
    ('a', 3, None, '4d4db5bbabf3998a')
    """
    try:
        if is_text and isinstance(cell, str):
            return _hash(cell) if cell else None
        if isinstance(cell, (list, dict)):
            return text_id(cell)
        return None if is_text or cell == "" else as_id(cell)
    except FAULTS:
        return None
