"""Files of lines, plain, gzip or zstd, which are read in bounded memory: as lines or as JSON records."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from budgetalloc.errors import imported
from budgetalloc.logs.chunk import FAULTS, Notes, Rows
from budgetalloc.logs.log_stream import LogStream

__all__ = ["BYTES", "Record", "first", "lines", "open_bytes", "parsed", "parsed_rows", "records", "single_lines"]

Record = dict[str, Any]
_T = TypeVar("_T")
_BATCH, BYTES = 4096, 1 << 22  # lines at a time, fewer where they are long
_BLOCK = 1 << 16  # bytes
_HEAD = 1 << 24  # bytes that `first` reads; a line with all tokens of an episode is long
_TORN = (OSError, EOFError, zlib.error)


def open_bytes(path: Path) -> tuple[IO[bytes], IO[bytes]]:
    """The file, whose position measures progress, and its unpacked content: the same file unless it is compressed.

    Raises:
        UnsupportedError: the file is zstd, and pyarrow is not installed.
    """
    raw = path.open("rb")
    magic = raw.read(4)
    raw.seek(0)
    if magic == b"\x28\xb5\x2f\xfd":
        arrow = imported("pyarrow", "Reading files compressed with zstd", "logs")
        return raw, cast(IO[bytes], arrow.CompressedInputStream(raw, "zstd"))
    return raw, cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if magic[:2] == b"\x1f\x8b" else raw


def single_lines(file: IO[bytes], notes: Notes, max_line: int) -> Iterator[bytes]:
    """The lines of a file with their ends. A truncated file is read as far as possible.

    A line of more than `max_line` bytes is skipped and counted, and never held in memory.
    """
    held: list[bytes] = []  # blocks of the current line
    size = 0
    while True:
        try:
            block = file.read1(_BLOCK)  # type: ignore[attr-defined]
        except _TORN:
            notes["file that ends early"] += 1
            return
        if not block:
            break
        ended = block.splitlines(keepends=True)
        rest = b"" if ended[-1].endswith((b"\n", b"\r")) else ended.pop()
        for line in ended:
            if size + len(line) > max_line:
                notes[f"line of more than max_line={max_line:,} bytes, skipped"] += 1
            else:
                yield b"".join([*held, line]) if held else line
            held, size = [], 0
        size += len(rest)
        if size > max_line:
            held = []
        elif rest:
            held.append(rest)
    if size > max_line:
        notes[f"line of more than max_line={max_line:,} bytes, skipped"] += 1
    elif held:
        yield b"".join(held)


def first(path: Path, count: int = 20) -> list[Record]:
    """The records in the first lines of a file, which identify its writer; none if it does not hold JSON lines."""
    if not path.is_file():
        return []
    head = b""
    raw, file = open_bytes(path)
    with raw:
        try:
            while head.count(b"\n") < count and len(head) < _HEAD and (block := file.read1(_BLOCK)):  # type: ignore[attr-defined]
                head += block
        except _TORN:
            pass  # the lines before the damage are enough
    return parsed(head.split(b"\n")[:count])[0]


def lines(reading: LogStream, path: Path, limit: int | None = None) -> Iterator[list[bytes]]:
    """The lines of a file, or the first `limit` of them, thousands at a time. Updates `reading.done`."""
    start = reading.done
    raw, file = open_bytes(path)
    with raw:
        held: list[bytes] = []
        size = 0
        for line in islice(single_lines(file, reading.notes, reading.options.max_line), limit):
            held.append(line)
            size += len(line)
            if len(held) == _BATCH or size > BYTES:
                reading.done = start + raw.tell()
                yield held
                held, size = [], 0
        reading.done = start + raw.tell()
        yield held


def records(reading: LogStream, path: Path, limit: int | None = None) -> Iterator[list[Record]]:
    """The records of a file, thousands at a time. A line that holds no record is counted as a broken row."""
    for held in lines(reading, path, limit):
        batch, broken = parsed(held)
        reading.notes.note("broken row", broken)
        yield batch


def parsed_rows(
    reading: LogStream,
    path: Path,
    parse: Callable[[Record], _T | None],
    rows: Callable[[list[_T]], Rows],
    at_once: Callable[[list[Record]], Rows | None] = lambda batch: None,
    limit: int | None = None,
) -> Iterator[Rows]:
    """The records of a file as rows.

    Args:
        reading: The log.
        path: The file.
        parse: Parses one record. Returns None if it left the record out and noted the reason. A record for which it
            raises one of `FAULTS` is a broken row.
        rows: Makes columns of what `parse` returned.
        at_once: Makes columns of a whole batch. Returns None if a record is unusual.
        limit: The number of lines to read, as in `lines`.
    """
    for batch in records(reading, path, limit):
        if (part := at_once(batch)) is not None:
            yield part
            continue
        rollouts = []
        for record in batch:
            try:
                row = parse(record)
            except FAULTS:
                reading.notes["broken row"] += 1
            else:
                if row is not None:
                    rollouts.append(row)
        if rollouts:
            yield rows(rollouts)


def parsed(lines: list[bytes]) -> tuple[list[Record], int]:
    """The records in these lines, and how many lines hold none. Blank lines do not count."""
    held = [line for line in lines if line.strip()]
    try:  # all lines at once, which is faster; the number of results shows whether every line is one record
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
