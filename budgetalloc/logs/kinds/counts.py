"""Tables in CSV or JSON lines, plain or gzip. A row is a rollout, or a group (successes and rollouts, or rewards)."""

import csv
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.errors import InputError
from budgetalloc.logs.ambiguous_columns import resolve_columns
from budgetalloc.logs.chunk import Notes, Rows
from budgetalloc.logs.column_names import Columns, identify_columns, listed
from budgetalloc.logs.columns import rollouts
from budgetalloc.logs.formats.lines import BYTES, first, open_bytes, records, single_lines
from budgetalloc.logs.kinds import ledger, nemo_gym, prime_rl, tinker, verifiers, verl
from budgetalloc.logs.log_stream import LogStream

__all__ = ["find", "rows", "texts"]

_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_LINES = (".jsonl", ".jsonl.gz")
_BATCH = 2048  # rows
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")


def find(path: Path) -> list[Path]:
    """A table, or the tables directly in a folder that have prompts and rewards."""
    if path.is_dir():
        return [x for x in sorted(path.iterdir()) if x.name.lower().endswith(_SUFFIXES + _LINES) and _fits(x)]
    return [path] if path.stat().st_size and (path.name.lower().endswith(_SUFFIXES) or _fits(path)) else []


def _fits(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        if names := _keys(path):  # JSON lines, unless another kind of log has these keys
            others = (ledger, verl, prime_rl, verifiers, tinker, nemo_gym)
            return identify_columns(names) is not None and not any(kind.find(path) for kind in others)
        raw, file = open_bytes(path)
        with raw:
            head = file.read(1 << 16)
        names = _header(head.split(b"\n")[0])[0]
        return b"\0" not in head and len(names) > 1 and identify_columns(names) is not None
    except InputError:
        return True  # a table with a duplicate column raises when it is read
    except (OSError, EOFError, zlib.error, csv.Error):
        return False


def _keys(path: Path) -> list[str]:
    """The keys of the first records of a file of JSON lines; empty for any other file."""
    return list(dict.fromkeys(key for record in first(path) for key in record))


def _header(line: bytes) -> tuple[list[str], str]:
    """The names of the columns, and their separator."""
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    separator = max(",;\t", key=text.count)
    return [name.strip() for name in next(csv.reader([text], delimiter=separator), [])], separator


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rows in ascending steps. A table out of order is sorted on disk."""
    return reading.in_order(lambda: _rollouts(reading, reading.location))


def texts(reading: LogStream, ids: Iterable[Id]) -> dict[Id, str]:
    """The texts of these prompts, if a column of texts names them. The file is read until all are known."""
    again = copy(reading)
    again.notes = Notes()  # the notes of `reading` stay unchanged
    wanted, known = set(ids), dict[Id, str]()
    for names, batch in _batches(again, reading.location):
        columns = identify_columns(names, reading.options)
        if columns is None or not columns.text or wanted <= known.keys():
            break
        at = names.index(columns.ids[0])
        for text in dict.fromkeys(row[at] for row in batch if isinstance(row[at], str)):
            if (name := text_id(text)) in wanted:
                known[name] = text
    return known


def _rollouts(reading: LogStream, path: Path) -> Iterator[Rows]:
    visits: Counter[Id] = Counter()
    columns: Columns | None = None
    typed = bool(_keys(path))  # JSON tells integers and texts apart
    for names, batch in _batches(reading, path):
        identified, columns = columns is not None, columns or identify_columns(names, reading.options)
        if columns is None:
            raise InputError(
                f"source={str(path)!r} has the columns {listed(names)}: one must name prompts, and one must hold "
                "rewards, or two successes and rollouts. Pass prompt_id= and reward= with the names of these columns."
            )
        cells: list[tuple[Any, ...]] = list(zip(*batch, strict=True)) or [()] * len(names)
        table: dict[str, Any] = {name: list(cells[names.index(name)]) for name in columns.used}
        for name in () if columns.text or typed else columns.ids:
            table[name] = [int(x) if _INTEGER.fullmatch(x) else x for x in table[name]]
        if not identified:
            columns = resolve_columns(table, columns, reading.notes)
        yield from rollouts(table, columns, visits, reading.notes, reading.options.max_row)


def _batches(reading: LogStream, path: Path) -> Iterator[tuple[list[str], list[list[Any]]]]:
    """The names of the columns, with rows of as many cells. Other rows are counted as broken."""
    if keys := _keys(path):
        for held in records(reading, path):
            yield keys, [[record.get(key) for key in keys] for record in held]
        return
    limit = reading.options.max_line
    csv.field_size_limit(max(csv.field_size_limit(), limit))  # a cell may be the text of a prompt
    raw, file = open_bytes(path)
    with raw:
        every = single_lines(file, reading.notes, limit)
        try:
            header = next(every, b"")
            if any(text.startswith("line of more") for text in reading.notes):
                raise InputError(f"{path}: the header is longer than max_line={limit:,} bytes.")
            if not header and reading.notes["file that ends early"]:
                raise InputError(f"{path} is damaged: it ends within its header.")
            names, separator = _header(header)
        except csv.Error as error:
            raise InputError(f"{path}: the first line cannot be read as the header of a CSV file ({error}).") from error
        size = 0

        def texts() -> Iterator[str]:
            nonlocal size
            for line in every:
                size += len(line)
                yield line.decode("utf-8", errors="replace")

        reader = csv.reader(texts(), delimiter=separator)
        batch: list[list[str]] = []
        while True:
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error:
                reading.notes["broken row"] += 1
                continue
            if len(row) == len(names):
                batch.append(row)
            elif row:
                reading.notes["broken row"] += 1
            if len(batch) == _BATCH or size > BYTES:
                reading.done = raw.tell()
                yield names, batch
                batch, size = [], 0
        reading.done = raw.tell()
        yield names, batch
