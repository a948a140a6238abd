"""A CSV file, plain or gzip: a row a group (successes and rollouts, or several rewards) or a row a rollout."""

import csv
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import InputError
from budgetalloc.logs.base import Rows
from budgetalloc.logs.columns import rollouts
from budgetalloc.logs.formats.lines import open_bytes
from budgetalloc.logs.names import Columns, identify
from budgetalloc.logs.reading import Reading
from budgetalloc.logs.steps import ascending

_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_BATCH = 2048  # rows
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
csv.field_size_limit(1 << 24)  # a cell may be the text of a prompt


def find(path: Path) -> list[Path]:
    """A CSV file, or those directly in a folder that have prompts and rewards."""
    if path.is_dir():
        return [x for x in sorted(path.iterdir()) if x.name.lower().endswith(_SUFFIXES) and _fits(x)]
    return [path] if path.stat().st_size and (path.name.lower().endswith(_SUFFIXES) or _fits(path)) else []


def files(path: Path) -> list[Path]:
    """The file itself."""
    return [path]


def _fits(path: Path) -> bool:
    try:
        raw, file = open_bytes(path)
        with raw:
            head = file.read(1 << 16)
        names = _header(head.split(b"\n")[0].decode("utf-8-sig"))[0]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error):
        return False
    return b"\0" not in head and len(names) > 1 and identify(names) is not None


def _header(line: str) -> tuple[list[str], str]:
    """The names of the columns, and their separator."""
    separator = max(",;\t", key=line.count)
    return [name.strip() for name in next(csv.reader([line.rstrip("\r\n")], delimiter=separator), [])], separator


def rows(reading: Reading) -> Iterator[Rows]:
    """The rows in ascending steps; a file out of order is sorted on disk."""
    assert reading.path is not None
    path = reading.path
    return ascending(lambda: _in_order(reading, path), reading.chunk, reading.notes)


def _in_order(reading: Reading, path: Path) -> Iterator[Rows]:
    reading.done = 0
    visits: Counter[Id] = Counter()
    columns: Columns | None = None
    for names, batch in _batches(reading, path):
        if columns is None:
            columns = identify(names, reading.prompt_id, reading.reward)
        if columns is None:
            raise InputError(
                f"source={str(path)!r} has the columns {names}: there must be one of prompts and one of rewards, or "
                "successes and rollouts. Name yours with prompt_id= and reward=."
            )
        cells: list[tuple[Any, ...]] = list(zip(*batch, strict=True)) or [()] * len(names)
        table: dict[str, Any] = {name: list(cells[names.index(name)]) for name in columns.used}
        for name in () if columns.text else columns.ids:
            table[name] = [int(x) if _INTEGER.fullmatch(x) else x for x in table[name]]
        part = rollouts(table, columns, visits, reading.notes)
        if part is not None:
            yield part


def _batches(reading: Reading, path: Path) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The header, with rows of as many cells; other rows are counted as broken."""
    raw, file = open_bytes(path)
    with raw, io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as text:
        names, separator = _header(text.readline())
        reader = csv.reader(text, delimiter=separator)
        batch: list[list[str]] = []
        while True:
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error:
                reading.notes["broken row"] += 1
                continue
            except (OSError, EOFError, zlib.error):
                reading.notes["file that ends early"] += 1
                break
            if len(row) == len(names):
                batch.append(row)
            elif row:
                reading.notes["broken row"] += 1
            if len(batch) == _BATCH:
                reading.done = raw.tell()
                yield names, batch
                batch = []
        reading.done = raw.tell()
        yield names, batch
