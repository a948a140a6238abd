"""Cells of a log as numbers and as ids of prompts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, nearest_name
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

    @property
    def prompts(self) -> tuple[str, ...]:
        """The column of prompts as it was named, and the columns that commas separate in it."""
        name = self.prompt
        return () if name is None else (name, *(x.strip() for x in name.split(",")))

    @property
    def names(self) -> set[str | None]:
        """Every column that the user named."""
        rewards = [self.reward] if isinstance(self.reward, str) else self.reward or ()
        return {self.step, self.success, self.length, *self.prompts, *rewards}


def plain(name: Any) -> str:
    """A column's name as it is compared: case does not matter, nor "-" and " " for "_".

    >>> plain("Prompt-ID")
    'prompt_id'
    """
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


def listed(names: Iterable[Any]) -> str:
    """The names of columns for the text of an error, at most 30 of them."""
    known = [name for name in map(str, names) if not name.startswith(OWN)]
    short = [name if len(name) <= 80 else f"{name[:77]}..." for name in known]
    return f"{short[:30]}" + (f" and {len(short) - 30:,} more" if len(short) > 30 else "")


def there(frame: pd.DataFrame, argument: str, name: str) -> str:
    """The name of a column that the user named; raises `InputError` if the log lacks it."""
    if name not in frame.columns:
        raise InputError(
            f"{argument}={name!r}: the log has no such column{nearest_name(name, frame.columns)} "
            f"It has {listed(frame.columns)}.",
            argument=argument,
        )
    return name


def distinct(values: pd.Series) -> tuple[NDArray[np.int64], list[Any]]:
    """For each row the place of its cell in a list, -1 for none, and this list of cells."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return values.cat.codes.to_numpy(), values.cat.categories.tolist()
    if values.dtype.kind in "if":
        place_R, cells = pd.factorize(values)
        return place_R, cells.tolist()
    return np.arange(len(values)), values.tolist()


def each(values: pd.Series, read: Callable[[Any], Any]) -> NDArray[np.object_]:
    """What `read` makes of each cell. Equal cells are read once, where that is known."""
    place_R, cells = distinct(values)
    found = [*map(read, cells), read(None)]
    return np.fromiter(found, dtype=object, count=len(found))[place_R]


def types(values: pd.Series) -> set[type]:
    """The types of a column's cells."""
    if values.dtype.kind in "if":
        return {float if values.dtype.kind == "f" else int}
    place_R, cells = distinct(values)
    return set(map(type, cells)) | ({type(None)} if (place_R < 0).any() else set())


def of_type(values: pd.Series, *kinds: type) -> NDArray[np.bool_]:
    """Which cells are of one of these types."""
    if not types(values) & {*kinds}:
        return np.zeros(len(values), dtype=bool)
    return each(values, lambda cell: type(cell) in kinds).astype(bool)


def replaced(values: pd.Series, mask_R: Any, others: Any) -> pd.Series:
    """The cells, with others where the mask is true."""
    return values.astype(object).mask(mask_R, others) if mask_R.any() else values


def numbers(values: pd.Series) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The cells as floats, NaN where there is none, and a mask of cells that are no numbers."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        place_R, found = distinct(values)
        array, odd = numbers(pd.Series([*found, None], dtype=object))
        return array[place_R], odd[place_R]
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
    return types(values) <= {float, int, type(None)}


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


def known_id(cell: Any, *, is_text: bool = False) -> Id | None:
    """The id of a prompt in a cell, None if there is none. Texts and messages are hashed.

    >>> known_id("a"), known_id(3.0), known_id(None), known_id("2 + 2 =", is_text=True)
    ('a', 3, None, '4d4db5bbabf3998a')
    """
    try:
        if is_text and isinstance(cell, str):
            return text_id(cell) if cell else None
        if isinstance(cell, (list, dict)):
            return text_id(cell)
        return None if is_text or cell == "" else as_id(cell)
    except FAULTS:
        return None
