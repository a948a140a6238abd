"""JSON records, and the single values that logs hold. Nothing here needs pandas."""

import gzip
import io
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_array, imported

__all__ = [
    "FAULTS",
    "LARGEST",
    "Notes",
    "Record",
    "as_id",
    "as_integer",
    "as_number",
    "first",
    "integer_column",
    "lines",
    "number_column",
    "parsed",
]

Record = dict[str, Any]
FAULTS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Exceptions that a row of unknown content raises. The row counts as broken."""
LARGEST = 2**53
"""The largest step or length. Larger integers are not exact as floats."""
_TORN = (OSError, EOFError, zlib.error)
_LFS = b"version https://git-lfs.github.com"
_NAMED = 20  # unknown columns in the notes


class Notes(Counter[str]):
    """What a reader left out or assumed, and how often."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.doubts: list[str] = []
        """The notes about ambiguous content of the log. A report shows them first."""
        self.missing = (0, 0)
        """Steps of the run that the log lacks, and the steps of the run; zeros where that is not
        known."""

    def note(self, text: str, count: int) -> None:
        """Adds to a note, unless `count` is 0."""
        if count > 0:
            self[text] += int(count)

    def doubt(self, text: str, count: int) -> None:
        """Adds to a note that belongs in the first lines of a report, unless `count` is 0."""
        self.note(text, count)
        if count > 0 and text not in self.doubts:
            self.doubts.append(text)

    def unknown(self, column: str, count: int) -> None:
        """Notes an unused column. The first 20 are named."""
        text = f"unknown column {column if len(column) < 80 else column[:77] + '...'!r}"
        if text not in self and sum(x.startswith("unknown column ") for x in self) >= _NAMED:
            text = "unknown columns beyond these"
        self.note(text, count)


def lines(path: Path, notes: Notes) -> Iterator[bytes]:
    """The lines of a file, plain, gzip or zstd. A truncated file is read as far as possible.

    Raises:
        InputError: the file is a pointer of Git LFS.
        UnsupportedError: the file is zstd, and pyarrow is not installed.
    """
    with path.open("rb") as raw:
        start = raw.read(len(_LFS))
        raw.seek(0)
        if start == _LFS:
            raise InputError(
                f"{path} is a pointer of Git LFS, not the file itself: run `git lfs pull` in its "
                "repository."
            )
        file = cast(IO[bytes], raw)
        if start[:2] == b"\x1f\x8b":
            file = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        elif start[:4] == b"\x28\xb5\x2f\xfd":
            arrow = imported("pyarrow", "Reading files compressed with zstd", "logs")
            file = cast(IO[bytes], io.BufferedReader(arrow.CompressedInputStream(raw, "zstd")))
        try:
            yield from file
        except _TORN:
            notes["file that ends early"] += 1


def first(path: Path, count: int = 20) -> list[Record]:
    """The records in the first lines of a file; none if it does not hold JSON lines."""
    return parsed(list(islice(lines(path, Notes()), count)))[0] if path.is_file() else []


def parsed(lines: list[bytes]) -> tuple[list[Record], int]:
    """The records in these lines, and how many lines hold none. Blank lines do not count."""
    held = [line for line in lines if line.strip()]
    # all lines at once, which is faster; the number of results shows whether every line is one
    # record
    try:
        every = json.loads(b"[" + b",".join(held) + b"]")
        if len(every) == len(held) and all(type(x) is dict for x in every):
            return every, 0
    except (ValueError, RecursionError):
        pass
    single = []
    for line in held:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            single.append(record)
    return single, len(held) - len(single)


def number_column(
    name: str, values: Any, rows: int, what: str = "one number per rollout"
) -> FloatArray:
    """A column of `rows` floats, None as NaN; raises `InputError` for anything else."""
    column = check_array(name, values, what, copy=False)
    if column.shape != (rows,):
        found = f"{len(column)} entries" if column.ndim == 1 else f"shape {column.shape}"
        raise InputError(f"{name} has {found}, and there are {rows} rollouts: give {what}.")
    return column


def integer_column(name: str, values: Any, rows: int) -> NDArray[np.int64]:
    """A column of `rows` integers, none larger than `LARGEST`; raises `InputError` for anything
    else."""
    what = "one integer a rollout, -1 where a length is not known"
    column = number_column(name, values, rows, what)
    with np.errstate(invalid="ignore"):
        fits = (np.abs(column) <= LARGEST) & (column == np.floor(column))
    if not fits.all():
        raise InputError(f"{name} holds {column[~fits][0]}: give {what}.")
    return column.astype(np.int64)


def as_id(value: Any) -> Id:
    """An id from a log; raises `TypeError`, `ValueError` or `OverflowError` for invalid ids.

    >>> as_id("a"), as_id(3), as_id(3.0)
    ('a', 3, 3)
    """
    if isinstance(value, str):
        return value
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.integer, np.floating))
        or value != int(value)
    ):
        raise TypeError("no prompt id")
    return int(value)


def as_integer(value: Any) -> int:
    """A step, a length or a count from a log; raises `TypeError`, `ValueError` or `OverflowError`
    for others.

    >>> as_integer(3), as_integer(3.0), as_integer("3")
    (3, 3, 3)
    """
    number = int(value)
    if (
        isinstance(value, bool)
        or abs(number) > LARGEST
        or (isinstance(value, float) and value != number)
    ):
        raise ValueError("no integer")
    return number


def as_number(value: Any) -> float:
    """A number from a log, None as NaN; raises `TypeError`, `ValueError` or `OverflowError` for
    others."""
    return math.nan if value is None else float(value)
