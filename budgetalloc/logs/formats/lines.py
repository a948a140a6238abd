"""Files of JSON lines, plain or gzip, record by record."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from budgetalloc.logs.base import Rows
from budgetalloc.logs.reading import Reading

Record = dict[str, Any]
T = TypeVar("T")
_BATCH, _BYTES = 4096, 1 << 22  # lines at a time, fewer where they are long
_LOOKED_AT = 1 << 24  # bytes of a line that `first` reads: those of an episode with all its tokens are long


def open_bytes(path: Path) -> tuple[IO[bytes], IO[bytes]]:
    """The file, and the file unpacked: the same unless it is gzip. The position in the first is how much was read."""
    raw = path.open("rb")
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return raw, cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw


def first(path: Path, count: int = 20) -> list[Record]:
    """The records among the first lines of a file, which show what wrote it; none if it is no file of JSON lines."""
    if not path.is_file():
        return []
    held: list[bytes] = []
    raw, file = open_bytes(path)
    with raw:
        try:
            for _ in range(count):
                held.append(file.readline(_LOOKED_AT))
        except (OSError, EOFError, zlib.error):
            pass  # it may be torn further on
    return _parsed([line for line in held if line.strip()])[0]


def lines(reading: Reading, path: Path, limit: int | None = None) -> Iterator[list[bytes]]:
    """The lines of a file, or the first `limit` of them, thousands at a time; moves `reading.done` on.

    A file that cannot be read to its end, such as one packed by a process that was killed, is read as far as it goes.
    """
    start = reading.done
    raw, file = open_bytes(path)
    with raw:
        held: list[bytes] = []
        size = 0
        try:
            for line in islice(file, limit):
                held.append(line)
                size += len(line)
                if len(held) == _BATCH or size > _BYTES:
                    reading.done = start + raw.tell()
                    yield held
                    held, size = [], 0
        except (OSError, EOFError, zlib.error):
            reading.notes["file that ends early"] += 1
        reading.done = start + raw.tell()
        yield held


def records(reading: Reading, path: Path, limit: int | None = None) -> Iterator[list[Record]]:
    """The records of a file, thousands at a time. A line that is none is counted as a broken row."""
    for held in lines(reading, path, limit):
        batch, broken = _parsed([line for line in held if not line.isspace()])
        if broken:
            reading.notes["broken row"] += broken
        yield batch


def parsed_rows(
    reading: Reading,
    path: Path,
    parse: Callable[[Record], T | None],
    rows: Callable[[list[T]], Rows],
    at_once: Callable[[list[Record]], Rows | None] = lambda batch: None,
    limit: int | None = None,
) -> Iterator[Rows]:
    """The records of a file as rows: `parse` takes one, and returns None where it left it out and noted why.

    A record in which it does not find what it needs (`KeyError`, `TypeError`, `ValueError`) is a broken row. `at_once`
    may take all records of a batch, and returns None where it meets anything unusual. `limit` is that of lines.
    """
    for batch in records(reading, path, limit):
        if (part := at_once(batch)) is not None:
            yield part
            continue
        parsed = []
        for record in batch:
            try:
                row = parse(record)
            except (KeyError, TypeError, ValueError, AttributeError):
                reading.notes["broken row"] += 1
            else:
                if row is not None:
                    parsed.append(row)
        if parsed:
            yield rows(parsed)


def _parsed(held: list[bytes]) -> tuple[list[Record], int]:
    """The records in these lines, and how many lines hold none."""
    try:  # all at once, which is twice as fast; a line too many or too few says that it was not one record a line
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
