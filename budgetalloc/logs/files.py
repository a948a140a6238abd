"""Files of rows as frames (JSON lines, CSV, parquet, Arrow, tables of W&B), and the search for the
one log of a folder."""

import csv
import json
import os
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from budgetalloc.errors import InputError, imported
from budgetalloc.logs.cells import listed
from budgetalloc.logs.records import (
    BYTES_READ,
    FAULTS,
    TORN,
    Notes,
    check_no_pointer,
    lines,
    parsed,
)

_SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".table.json")
_PACKED = (".gz", ".zst")
# folders and files that hold no rollouts of training
_LEFT_OUT = ("eval", "checkpoint-", "cache-", "annotations", ".")
_DEEPEST = 5  # folders below the one that is searched
_HEAD, _ROWS = 64, 65_536  # rows that tell the kind of a log, and rows that are parsed at once


def frame_of(path: Path, notes: Notes, most: int | None = None) -> pd.DataFrame | None:
    """The rows of a file, at least `most` or all, as they are written: cells are objects, or
    floats. None for no table. Rows that cannot be read, and an early end, are noted."""
    check_no_pointer(path)
    if path.name.endswith(".table.json"):
        return _split(path.read_bytes(), notes)
    if path.suffix in (".parquet", ".arrow"):
        return _joined(_arrow(path, notes), most)
    every = lines(path, notes)
    head = list(islice(every, 20))
    every = chain(head, every)
    first = next((line for line in head if line.strip()), b"")
    opening = first.strip(b"\xef\xbb\xbf \t\r\n")
    if opening.startswith(b"["):
        return _json_list(every)
    records = parsed(head)[0]
    if opening == b"{" or (opening.startswith(b"{") and not records):  # one document in many lines
        text = b"".join(every)
        whole = parsed([text.strip(b"\xef\xbb\xbf \t\r\n")])[0]
        every = iter([json.dumps(whole[0]).encode()] if whole else text.splitlines(True))
        records = whole or records
    if len(records) == 1 and records[0].keys() >= {"columns", "data"}:
        return _split(b"".join(every), notes)
    if records:
        return _joined(_records(every, notes, min(most or _ROWS, _ROWS)), most)
    return _csv(every, notes, most)


def head_of(path: Path) -> pd.DataFrame | None:
    """The first rows of a file; None if it holds no table."""
    try:
        return frame_of(path, Notes(), _HEAD)
    except (InputError, OSError):
        if path.is_file() and path.stat().st_size > 0:
            raise
        return None


def dataset_frame(source: Any) -> pd.DataFrame:
    """The rows of a `datasets.Dataset`, in memory or as a stream."""
    names = getattr(source, "column_names", ())
    if not hasattr(source, "column_names") or not hasattr(source, "with_format"):
        raise InputError(
            f"source is a {type(source).__name__}: give the path of a file or folder, or a "
            "datasets.Dataset. A pandas frame is read by Ledger.of_frame.",
            argument="source",
        )
    if isinstance(names, dict):
        raise InputError(
            f"source has the splits {listed(names)}: give one of them, as "
            f"source[{next(iter(names), '')!r}].",
            argument="source",
        )
    batches = source.with_format("arrow").iter(batch_size=_ROWS)
    return _whole(map(_batch_frame, batches))


def _whole(parts: Iterator[pd.DataFrame]) -> pd.DataFrame:
    held = list(parts)
    return pd.concat(held, ignore_index=True) if len(held) > 1 else (held or [pd.DataFrame()])[0]


def _joined(parts: Iterator[pd.DataFrame], most: int | None) -> pd.DataFrame | None:
    frame = _whole(islice(parts, 1) if most else parts)
    return frame if len(frame.columns) else None


def _records(every: Iterator[bytes], notes: Notes, size: int) -> Iterator[pd.DataFrame]:
    while held := list(islice(every, size)):
        records, broken = parsed(held)
        notes.note("broken row", broken)
        yield pd.DataFrame(records, dtype=object)


def _csv(every: Iterator[bytes], notes: Notes, most: int | None) -> pd.DataFrame | None:
    csv.field_size_limit(1 << 30)  # a cell may be the text of a prompt
    header = next(every, b"").decode("utf-8-sig", errors="replace").rstrip("\r\n")
    separator = max(",;\t", key=header.count)
    try:
        names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
    except csv.Error:
        return None
    if not names or "\0" in header:
        return None
    _check_names(names)
    reader = csv.reader((x.decode("utf-8", errors="replace") for x in every), delimiter=separator)
    rows: list[list[str]] = []
    while most is None or len(rows) < most:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error:
            row = [""] * (len(names) + 1)
        if len(row) == len(names):
            rows.append(row)
        elif row:
            notes["broken row"] += 1
    frame = pd.DataFrame(rows, columns=names, dtype=object)
    frame.attrs["untyped"] = True  # an integer is text
    return frame


def _json_list(every: Iterator[bytes]) -> pd.DataFrame | None:
    """The rows of a JSON list of records; None for another text."""
    try:
        rows = json.loads(b"".join(every).decode("utf-8-sig"))
    except FAULTS:
        return None
    whole = bool(rows) and all(type(row) is dict for row in rows)
    return pd.DataFrame(rows, dtype=object) if whole else None


def _split(text: bytes, notes: Notes) -> pd.DataFrame | None:
    """The rows of a table of W&B or of mlflow: one document of columns and data."""
    try:
        content = json.loads(text)
        names = list(content["columns"])
        if not all(isinstance(name, str) for name in names):
            raise TypeError("no names of columns")
        rows = [row for row in content["data"] if isinstance(row, list) and len(row) == len(names)]
        notes.note("broken row", len(content["data"]) - len(rows))
        return pd.DataFrame(rows, columns=names, dtype=object)
    except FAULTS:
        notes[TORN[1]] += 1
        return None


def _arrow(path: Path, notes: Notes) -> Iterator[pd.DataFrame]:
    pa = imported("pyarrow", "Reading parquet and Arrow files", "logs")
    parquet = imported("pyarrow.parquet", "Reading parquet and Arrow files", "logs")
    try:
        with pa.OSFile(str(path)) as source:
            packed = path.suffix == ".parquet"
            batches = parquet.ParquetFile(source).iter_batches() if packed else _ipc(pa, source)
            for batch in batches:
                # the offsets of a damaged batch may point anywhere in memory
                batch.validate(full=True)
                yield _batch_frame(batch)
        if moved := BYTES_READ.get():
            moved(path.stat().st_size)
    except InputError:
        raise
    except (OSError, pa.ArrowException, MemoryError, *FAULTS):
        notes[TORN[1]] += 1


def _ipc(pa: Any, source: Any) -> Iterator[Any]:
    """The batches of the stream format, which `datasets` writes, or of the file format."""
    try:
        every = pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        source.seek(0)
        file = pa.ipc.open_file(source)
        every = map(file.get_batch, range(file.num_record_batches))
    yield from every


def _batch_frame(batch: Any) -> pd.DataFrame:
    """A batch or a table of Arrow. Integers and texts stay exact."""
    names = batch.schema.names
    _check_names(names)
    return pd.DataFrame({name: _column(batch.column(at)) for at, name in enumerate(names)})


def _column(values: Any) -> Any:
    if str(values.type) in ("float", "double"):
        return np.array(values.to_pandas(), dtype=np.float64)
    cells = values.to_pylist()
    if "extension<arrow.json>" in str(values.type):
        cells = [_decoded(cell, values.type) for cell in cells]
    return pd.Series(cells, dtype=object)


def _decoded(cell: Any, kind: Any) -> Any:
    """A cell in which the JSON text of `datasets`' type Json, at any depth, is the value itself."""
    if str(kind) == "extension<arrow.json>":
        return json.loads(cell) if isinstance(cell, str) else cell
    if isinstance(cell, list):
        return [_decoded(x, kind.value_type) for x in cell]
    if isinstance(cell, dict):
        return {name: _decoded(x, kind.field(name).type) for name, x in cell.items()}
    return cell


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"The log has the column {name!r} twice, in {listed(names)}: rename one of them."
            )


def candidates(path: Path) -> list[list[Path]]:
    """The files of a folder that may hold rollouts. Files whose names differ by numbers are one
    series, in the order of these numbers."""
    series: dict[str, dict[tuple[int, ...], Path]] = {}
    for file in _files(path):
        name = str(file.relative_to(path))
        plain = name.removesuffix(".gz").removesuffix(".zst")
        plain = re.sub(r"_\d+_[0-9a-f]+\.table\.json$", "_#.table.json", plain)
        numbers = tuple(map(int, re.findall(r"\d+", name)))
        same = series.setdefault(re.sub(r"\d+", "#", plain), {})
        # while a chunk is being packed it has two files
        if numbers not in same or file.suffix not in _PACKED:
            same[numbers] = file
    return [[files[numbers] for numbers in sorted(files)] for files in series.values()]


def _files(path: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(path):
        depth = len(Path(folder).relative_to(path).parts)
        folders[:] = sorted(x for x in folders if depth < _DEEPEST and not x.startswith(_LEFT_OUT))
        for name in sorted(names):
            ending = name.lower().removesuffix(".gz").removesuffix(".zst")
            file = Path(folder, name)
            if ending.endswith(_SUFFIXES) and not name.startswith(_LEFT_OUT) and file.is_file():
                yield file
