"""Files of rows as frames: JSON lines, CSV, parquet, Arrow and tables of W&B; text may be packed
(gzip, zstd)."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pandas as pd

from budgetalloc.errors import InputError, imported
from budgetalloc.logs.records import FAULTS, Notes, lines, parsed

__all__ = ["SUFFIXES", "batch_frame", "listed", "parts"]

SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".table.json")
"""The endings of the files that are looked for in a folder, without that of the compression."""
_HEAD, _ROWS = 64, 32_768  # rows of the first part, which tells the kind of log, and of the others


def parts(path: Path, notes: Notes) -> Iterator[pd.DataFrame]:
    """The rows of a file, some thousand at a time, as they are written: cells are objects or
    numbers.

    Args:
        path: The file.
        notes: Counts rows that cannot be read, and a file that ends early.
    """
    if path.suffix in (".parquet", ".arrow"):
        yield from _arrow(path, notes)
    elif path.name.endswith(".table.json"):
        yield from _wandb(path, notes)
    else:
        every = lines(path, notes)
        head = list(islice(every, 20))
        as_records = bool(parsed(head)[0])
        yield from (_records if as_records else _csv)(chain(head, every), notes)


def listed(names: Sequence[Any]) -> str:
    """The names of columns for the text of an error, at most 30 of them."""
    shown = [name if len(name) <= 80 else f"{name[:77]}..." for name in map(str, names[:30])]
    return f"{shown}" if len(names) <= 30 else f"{shown} and {len(names) - 30:,} more"


def batch_frame(batch: Any) -> pd.DataFrame:
    """A batch or a table of Arrow. Integers and texts stay exact."""
    names = batch.schema.names
    _check_names(names)
    return pd.DataFrame({name: _column(batch.column(at)) for at, name in enumerate(names)})


def _column(values: Any) -> Any:
    pa = imported("pyarrow", "Reading parquet and Arrow files", "logs")
    if pa.types.is_floating(values.type) and not pa.types.is_float16(values.type):
        return (
            values.to_numpy(zero_copy_only=False)
            if hasattr(values, "offset")
            else values.to_numpy()
        )
    return pd.Series(values.to_pylist(), dtype=object)


def _records(every: Iterable[bytes], notes: Notes) -> Iterator[pd.DataFrame]:
    for held in _batches(every):
        records, broken = parsed(held)
        notes.note("broken row", broken)
        yield pd.DataFrame(records, dtype=object)


def _csv(every: Iterator[bytes], notes: Notes) -> Iterator[pd.DataFrame]:
    csv.field_size_limit(1 << 30)  # a cell may be the text of a prompt
    header = next(every, b"").decode("utf-8-sig", errors="replace").rstrip("\r\n")
    separator = max(",;\t", key=header.count)
    try:
        names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
    except csv.Error:
        return
    if not names or "\0" in header:
        return
    _check_names(names)
    rows = csv.reader(
        (line.decode("utf-8", errors="replace") for line in every), delimiter=separator
    )
    empty = pd.DataFrame(columns=names, dtype=object)
    for held in chain(_batches(_whole(rows, len(names), notes)), [[]]):
        part = pd.DataFrame(held, columns=names, dtype=object) if held else empty
        part.attrs["untyped"] = True  # an integer is text
        yield part


def _whole(rows: Iterator[list[str]], size: int, notes: Notes) -> Iterator[list[str]]:
    """The rows of this size."""
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            notes["broken row"] += 1
            continue
        if len(row) == size:
            yield row
        elif row:
            notes["broken row"] += 1


def _batches(every: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(every)
    size = _HEAD
    while held := list(islice(rows, size)):
        yield held
        size = _ROWS


def _arrow(path: Path, notes: Notes) -> Iterator[pd.DataFrame]:
    pa = imported("pyarrow", "Reading parquet and Arrow files", "logs")
    parquet = imported("pyarrow.parquet", "Reading parquet and Arrow files", "logs")
    try:
        with pa.OSFile(str(path)) as source:
            packed = path.suffix == ".parquet"
            for batch in (
                parquet.ParquetFile(source).iter_batches(_ROWS) if packed else _ipc(pa, source)
            ):
                # the offsets of a damaged batch may point anywhere in memory
                batch.validate(full=True)
                yield batch_frame(batch)
    except InputError:
        raise
    except (OSError, pa.ArrowException, MemoryError, *FAULTS):
        notes["file that cannot be read to its end"] += 1


def _ipc(pa: Any, source: Any) -> Iterator[Any]:
    """The batches of the stream format, which `datasets` writes, or of the file format."""
    try:
        every = pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        source.seek(0)
        file = pa.ipc.open_file(source)
        every = map(file.get_batch, range(file.num_record_batches))
    yield from every


def _wandb(path: Path, notes: Notes) -> Iterator[pd.DataFrame]:
    try:
        content = json.loads(path.read_bytes())
        names = list(content["columns"])
        if not all(isinstance(name, str) for name in names):
            raise TypeError("no names of columns")
        rows = [row for row in content["data"] if isinstance(row, list) and len(row) == len(names)]
        notes.note("broken row", len(content["data"]) - len(rows))
        yield pd.DataFrame(rows, columns=names, dtype=object)
    except FAULTS:
        notes["file that cannot be read to its end"] += 1


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"The log has the column {name!r} twice, in {listed(names)}: rename one of them."
            )
