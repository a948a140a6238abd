"""Files of rows as frames, and the search for the one log of a folder.

Arrow reads what it reads exactly: types are stated, never guessed. Python reads the blocks of JSON
lines and the CSV files that Arrow refuses.
"""

import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from budgetalloc.errors import InputError
from budgetalloc.logs.arrow_files import Held, Wanted, arrow_frames, check_names
from budgetalloc.logs.cells import OWN
from budgetalloc.logs.columns import (
    Column,
    Part,
    frame_of_columns,
    objects,
    part_of,
    part_of_cells,
)
from budgetalloc.logs.records import (
    BLOCK,
    BYTES_READ,
    FAULTS,
    LARGEST,
    TORN,
    Notes,
    Record,
    arrow,
    blocks,
    check_no_pointer,
    opened,
    parsed,
)

_SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".table.json")
_PACKED = (".gz", ".zst")
# folders and files that hold no rollouts of training
_LEFT_OUT = ("eval", "checkpoint-", "cache-", "annotations", ".")
_DEEPEST = 5  # folders below the one that is searched
_PIECE = BLOCK // 32  # bytes of JSON lines that Python reads where Arrow refuses one of them
_HEAD = 64  # rows that tell the kind of a log
_RETURN = re.compile(rb"\r[^\n]")
_NONE = type(None)
_TYPES = {int: "int64", float: "float64", str: "string", bool: "bool", _NONE: "null"}  # of Arrow
_NULLS = ("success", "decision")  # a ledger tells null from a missing key


def frames_of(files: Sequence[Path], notes: Notes, wanted: Wanted | None) -> Iterator[pd.DataFrame]:
    """The rows of all files as few frames, with the file of each row."""
    if files and files[0].suffix in (".parquet", ".arrow"):
        yield from arrow_frames(files, notes, wanted)
        return
    for path in files:
        frame = frame_of(path, notes, wanted=wanted)
        if frame is not None:
            yield frame.assign(**{OWN + "file": pd.Categorical([str(path)] * len(frame))})


def frame_of(
    path: Path, notes: Notes, most: int | None = None, wanted: Wanted | None = None
) -> pd.DataFrame | None:
    """The rows of a file, or the first of them. None for no table. Rows that cannot be read, and an
    early end, are noted."""
    if path.suffix in (".parquet", ".arrow"):
        return next(arrow_frames([path], notes, wanted, most), None)
    check_no_pointer(path)
    if path.name.endswith(".table.json"):
        return _split(path.read_bytes(), notes)
    every = blocks(path, notes)
    start = next(every, b"")
    every = chain([start], every)
    head = [line for line in start.split(b"\n", 20)[:20] if line.strip()]
    opening = head[0].strip(b"\xef\xbb\xbf \t\r\n") if head else b""
    if opening.startswith(b"["):
        return _json_list(every)
    records = parsed(head)[0]
    if opening == b"{" or (opening.startswith(b"{") and not records):  # one document in many lines
        text = b"".join(every)
        whole = parsed([text.strip(b"\xef\xbb\xbf \t\r\n")])[0]
        every = iter([json.dumps(whole[0]).encode()] if whole else [text])
        records = whole or records
    if len(records) == 1 and records[0].keys() >= {"columns", "data"}:
        return _split(b"".join(every), notes)
    if most is not None:
        every = iter([b"\n".join(next(every).split(b"\n", most)[:most])])
    if records:
        return _records(every, records, notes)
    frame = _csv_by_arrow(path, start, notes, wanted) if wanted is not None else None
    return _csv(every, notes) if frame is None else frame


def head_of(path: Path) -> pd.DataFrame | None:
    """The first rows of a file; None if it holds no table."""
    try:
        return frame_of(path, Notes(), _HEAD)
    except (InputError, OSError):
        if path.is_file() and path.stat().st_size > 0:
            raise
        return None


def _records(every: Iterable[bytes], head: list[Record], notes: Notes) -> pd.DataFrame | None:
    """The rows of blocks of JSON lines."""
    types, rows = _types(head, {}), 0
    columns = {name: Column() for name in chain.from_iterable(head)}
    for block in every:
        found = _json_by_arrow(block, types)
        for piece in _pieces(block) if types and found is None else [block]:
            found = found if piece is block else _json_by_arrow(piece, types)
            if found is None:
                records, broken = parsed(piece.split(b"\n"))
                notes.note("broken row", broken)
                names = dict.fromkeys(chain.from_iterable(records))
                found = {x: part_of_cells([row.get(x, np.nan) for row in records]) for x in names}
                types, count = _types(records, types), len(records)
            else:
                count = max(x if isinstance(x, int) else len(x) for x in found.values())
            for name in [x for x in found if x not in columns]:
                columns[name] = Column()
                columns[name].add(rows)
            for name, column in columns.items():
                column.add(found.get(name, count))
            rows += count
    return frame_of_columns(columns) if columns else None


def _pieces(block: bytes) -> Iterator[bytes]:
    """The lines of a block, in pieces."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + _PIECE) + 1 or len(block)
        yield block[start:end]
        start = end


def _types(records: list[Record], known: Mapping[str, type] | None) -> dict[str, type] | None:
    """The type of each key; None if a key has several. A block with lists is left to Python."""
    types = dict(known or {})
    for key, value in chain.from_iterable(record.items() for record in records):
        if isinstance(value, (list, dict)):
            continue
        kinds = {types.get(key, _NONE), type(value)} - {_NONE}
        if known is None or not (len(kinds) < 2 or kinds == {int, float}):
            return None
        types[key] = float if len(kinds) > 1 else next(iter(kinds), _NONE)
    return types


def _json_by_arrow(block: bytes, types: Mapping[str, type] | None) -> dict[str, Part] | None:
    """The columns of a block of JSON lines; None if Python has to read it."""
    if not types:
        return None
    pa, reader = arrow(), arrow("pyarrow.json")
    try:  # a name may have lone surrogates
        schema = pa.schema([(name, _TYPES[kind]) for name, kind in types.items()])
        parse = reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        read = reader.ReadOptions(use_threads=False, block_size=2 * len(block) + 64)
        table = reader.read_json(pa.BufferReader(block), read, parse)
        table.validate(full=True)
    except (pa.ArrowException, ValueError):
        return None
    nulls, said = sum(x.null_count for x in table.columns), block.count(b"null")
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if table.num_rows != lines:
        lines = sum(map(bool, map(bytes.strip, block.split(b"\n"))))
    if table.num_rows != lines or (nulls and said not in (0, nulls)):
        return None
    found: dict[str, Part] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values, kind = column.combine_chunks(), types[name]
        if kind is float and np.nanmax(np.abs(part_of(values)), initial=0.0) >= LARGEST:
            return None  # perhaps an integer that is no float
        if values.null_count == lines and not said:
            found[name] = lines
        elif values.null_count and said and (name in _NULLS or kind is not float):
            found[name] = objects(values.to_pylist())
        elif values.null_count and kind not in (float, str, _NONE):
            return None
        else:
            found[name] = part_of(values)
    return found


def _csv_by_arrow(path: Path, start: bytes, notes: Notes, wanted: Wanted) -> pd.DataFrame | None:
    """The rows of a CSV file; None if Python has to read it."""
    pa, reader = arrow(), arrow("pyarrow.csv")
    names, separator = _header(start.split(b"\n", 1)[0])
    broken: list[Any] = []

    def skip(row: Any) -> str:
        broken.append(row.number)
        return "skip"

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        places = [str(names.index(name)) for name in columns]
        texts = dict.fromkeys(places, pa.dictionary(pa.int32(), pa.string()))
        every = [str(at) for at in range(len(names))]
        with contextlib.closing(_Unquoted(path)) as file:
            yield from reader.open_csv(
                pa.PythonFile(file, mode="r"),
                reader.ReadOptions(
                    use_threads=False, block_size=BLOCK, skip_rows=1, column_names=every
                ),
                reader.ParseOptions(
                    delimiter=separator, newlines_in_values=True, invalid_row_handler=skip
                ),
                reader.ConvertOptions(include_columns=places, column_types=texts),
            )

    if not names:
        return None
    held = Held(pa.schema([(name, pa.string()) for name in names]), wanted)
    try:
        for batch in batches([held.response]) if held.response else ():
            held.add_responses(batch.column(0).slice(0, held.sample))
            if not held.sample:
                break
        broken.clear()
        columns = [name for name in names if name in held.read]
        for batch in batches(columns):
            held.add(path, dict(zip(columns, batch.columns, strict=True)), len(batch))
    except (pa.ArrowException, EOFError, OSError, *FAULTS):
        return None
    frame = held.frame()
    if frame is not None:
        notes.note("broken row", len(broken))
        frame.attrs["untyped"] = True  # an integer is text
    return frame


class _Unquoted(io.RawIOBase):
    """The bytes of a file; raises `ValueError` at a carriage return that ends no line."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._file, self._raw = self._stack.enter_context(opened(path))
        self._moved, self._place = BYTES_READ.get() or (lambda more: None), 0
        self._last = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._moved(self._raw.tell() - self._place)
        self._place = self._raw.tell()
        # without a copy: a new megabyte for each read costs more than the search
        inside = b"\r" in data and _RETURN.search(data)
        if inside or _RETURN.search(self._last + data[:1]):
            raise ValueError("a carriage return within a line")
        self._last = data[-1:]
        return data

    def close(self) -> None:
        self._stack.close()
        super().close()


def _header(line: bytes) -> tuple[list[str], str]:
    """The names of a CSV file's columns, none if it has none, and what separates them."""
    header = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    separator = max(",;\t", key=header.count)
    names: list[str] = []
    with contextlib.suppress(csv.Error):
        names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
    return ([] if "\0" in header else names), separator


def _csv(every: Iterator[bytes], notes: Notes) -> pd.DataFrame | None:
    csv.field_size_limit(1 << 30)  # a cell may be the text of a prompt
    lines = (line for block in every for line in io.BytesIO(block))
    names, separator = _header(next(lines, b""))
    if not names:
        return None
    check_names(names)
    reader = csv.reader((x.decode("utf-8", errors="replace") for x in lines), delimiter=separator)
    rows: list[list[str]] = []
    while True:
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
