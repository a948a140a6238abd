"""JSON records, and the single values that logs hold. Nothing here needs pandas."""

import contextlib
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import InputError, import_optional

Record = dict[str, Any]
FAULTS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Exceptions that a row of unknown content raises. The row counts as broken."""
LARGEST = 2**53
"""The largest step or length. Larger integers are not exact as floats."""
NO_STEPS = (
    "no column of steps: all rows of a prompt are taken as one group. If there is one, name it "
    "with step="
)
"""The doubt about a log whose groups are not known."""
# rows that were left out, although they are rollouts
_LOST = ("broken row", "row without a prompt")
_MANY = 0.01  # of the rows, from which on their loss is named
TORN = ("file that ends early", "file that cannot be read to its end")
"""Notes about files of which an unknown part was left out."""
_LFS = b"version https://git-lfs.github.com"
BLOCK = 1 << 20
"""Bytes of a text file that are read at once."""
_NAMED = 20  # unused columns in the notes


BYTES_READ: ContextVar[Callable[[int], None] | None] = ContextVar("BYTES_READ", default=None)
"""Called with numbers of bytes while a log is read, for a progress bar."""


class Notes(Counter[str]):
    """What a reader left out or assumed, and how often."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.doubts: list[str] = []
        """The notes about ambiguous content of the log. A report shows them first."""
        self.missing = (0, 0)
        """Steps of the run that the log lacks, and the steps of the run; zeros where unknown."""

    def __reduce__(self) -> Any:
        return type(self), (dict(self),), vars(self)

    def note(self, text: str, count: int) -> None:
        """Adds to a note, unless `count` is 0."""
        if count > 0:
            self[text] += int(count)

    def doubt(self, text: str, count: int = 1) -> None:
        """Adds to a note that belongs in the first lines of a report, unless `count` is 0."""
        self.note(text, count)
        if count > 0 and text not in self.doubts:
            self.doubts.append(text)

    def unused(self, frame: Any, used: Iterable[str]) -> None:
        """Notes the columns of a frame that are not read. The first 20 are named."""
        for column in frame.columns.difference(list(used), sort=False):
            text = f"unknown column {column if len(column) < 80 else column[:77] + '...'!r}"
            if text not in self and sum(x.startswith("unknown column ") for x in self) >= _NAMED:
                text = "unknown columns beyond these"
            self.note(text, frame[column].notna().sum())


def losses(notes: Mapping[str, int], rollouts: int, unscored: int) -> list[str]:
    """What a log has lost, in phrases: rows, if they are more than 1 %, and ends of files.

    >>> losses({"broken row": 3}, rollouts=5, unscored=2)
    ['5 of 10 rows, which are lost (broken row: 3, row without a reward: 2)']
    """
    lost = {text: notes[text] for text in _LOST if text in notes}
    lost |= {"row without a reward": unscored} if unscored else {}
    count, parts = sum(lost.values()), ", ".join(f"{text}: {n:,}" for text, n in lost.items())
    whole = rollouts + count
    rows = [f"{count:,} of {whole:,} rows, which are lost ({parts})"]
    return (rows if count > _MANY * whole else []) + [f"the {x}" for x in TORN if x in notes]


def check_no_pointer(path: Path) -> None:
    """Raises `InputError` if Git LFS keeps the file elsewhere."""
    with path.open("rb") as file:
        if file.read(len(_LFS)) == _LFS:
            raise InputError(
                f"{path} is a pointer of Git LFS, not the file itself: run `git lfs pull` in its "
                "repository."
            )


def arrow(module: str = "pyarrow") -> Any:
    """The library that reads files; raises `UnsupportedError` if it is not installed."""
    return import_optional(module, "Reading logs", "logs")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """The bytes of a file, plain, gzip or zstd, and the file as it is.

    Raises:
        InputError: the file is a pointer of Git LFS.
        UnsupportedError: the file is zstd, and pyarrow is not installed.
    """
    check_no_pointer(path)
    with path.open("rb") as raw:
        start = raw.read(4)
        raw.seek(0)
        if start[:2] == b"\x1f\x8b":
            yield gzip.GzipFile(fileobj=raw), raw
        elif start[:4] == b"\x28\xb5\x2f\xfd":
            yield io.BufferedReader(arrow().CompressedInputStream(raw, "zstd")), raw
        else:
            yield raw, raw


def blocks(path: Path, notes: Notes) -> Iterator[bytes]:
    """The bytes of a file, in blocks of whole lines. A truncated file is read as far as
    possible."""
    held, size, place = list[bytes](), 0, 0
    moved = BYTES_READ.get() or (lambda more: None)
    with opened(path) as (file, raw):
        try:
            while data := file.read1(BLOCK):
                moved(raw.tell() - place)
                place = raw.tell()
                held.append(data)
                size += len(data)
                if size >= BLOCK and (end := data.rfind(b"\n") + 1):
                    yield b"".join([*held[:-1], data[:end]])
                    held, size = [data[end:]], len(data) - end
        except (OSError, EOFError, zlib.error):
            notes[TORN[0]] += 1
    if any(held):
        yield b"".join(held)


def first(path: Path, count: int = 20) -> list[Record]:
    """The records in the first lines of a file; none if it does not hold JSON lines."""
    start = next(blocks(path, Notes()), b"") if path.is_file() else b""
    return parsed(start.split(b"\n", count)[:count])[0]


def parsed(lines: list[bytes]) -> tuple[list[Record], int]:
    """The records in these lines, and how many lines hold none. Blank lines do not count."""
    held = [line for line in lines if line.strip()]
    # all lines at once is faster; the number of results shows whether every line is one record
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


def as_id(value: Any) -> Id:
    """An id from a log; raises one of `FAULTS` for what is none.

    >>> as_id("a"), as_id(3), as_id(3.0)
    ('a', 3, 3)
    """
    if isinstance(value, str):
        return value
    number = isinstance(value, (int, float, np.integer, np.floating))
    if not number or isinstance(value, bool) or value != int(value):
        raise TypeError("no prompt id")
    return int(value)


def as_integer(value: Any) -> int:
    """A step, a length or a count from a log; raises one of `FAULTS` for others.

    >>> as_integer(3), as_integer(3.0), as_integer("3")
    (3, 3, 3)
    """
    number = int(value)
    fraction = isinstance(value, float) and value != number
    if isinstance(value, bool) or fraction or abs(number) > LARGEST:
        raise ValueError("no integer")
    return number
