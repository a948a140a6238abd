"""Parquet and Arrow files, and `datasets`, as frames. Only columns that are needed are read."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from budgetalloc.errors import InputError
from budgetalloc.logs.cells import OWN, each, listed
from budgetalloc.logs.columns import TEXTS, Column, frame_of_columns, part_of
from budgetalloc.logs.records import BYTES_READ, FAULTS, TORN, Notes, arrow, check_no_pointer

ROWS = 65_536  # rows that are read at once
_SAMPLE = 8_192  # rows whose responses are read
_BUFFER = 1 << 16  # bytes of a column that are read at once

Wanted = Callable[[Mapping[str, bool]], tuple[set[str], str | None]]
"""From the names of columns, and whether they hold numbers, to those that are read, and the one
that holds responses."""


class Held:
    """The wanted columns of files with one schema, while they are read, and the names of others.
    Responses are read of the first rows only."""

    def __init__(self, schema: Any, wanted: Wanted | None) -> None:
        check_names(schema.names)
        self.schema = schema
        self.read, self.response = set(schema.names), None
        if wanted is not None:
            self.read, self.response = wanted({x.name: _is_number(x.type) for x in schema})
        if self.response and str(schema.field(self.response).type).startswith("list<item: string"):
            self.read.add(self.response)  # a response for each entry of a row
            self.response = None
        self.stored: Any = None  # the schema as parquet stores it
        self.texts: list[str] = []  # the columns that are read as codes
        self.sizes: dict[str, int] = {}
        self._columns = {name: Column() for name in schema.names if name in self.read}
        self._responses: list[NDArray[np.int64]] = []
        self._sampled, self._most = 0, _SAMPLE

    def is_of(self, schema: Any) -> bool:
        return self.schema is schema or bool(self.schema.equals(schema))

    @property
    def sample(self) -> int:
        """The rows whose responses are still wanted."""
        return 0 if self.response is None else max(_SAMPLE - self._sampled, 0)

    def add(self, path: Path, columns: Mapping[str, Any], rows: int) -> None:
        """Adds a batch: the columns that are read."""
        for name in self.read:
            # the offsets of a damaged batch may point anywhere in memory
            columns[name].validate(full=True)
        parts = {name: part_of(columns[name]) for name in self.read}
        for name, part in parts.items():
            self._columns[name].add(part)
        self.sizes[str(path)] = self.sizes.get(str(path), 0) + rows

    def add_responses(self, values: Any) -> None:
        """Adds the responses of the first rows of a file."""
        values.validate(full=True)
        column = Column()
        column.add(part_of(values))
        cells = pd.Series(column.array())
        self._responses.append(each(cells, lambda cell: hash(str(cell))).astype(np.int64))
        self._sampled += len(values)

    def end_responses(self) -> None:
        """Keeps the responses of the rows that were read, and no later ones."""
        self._sampled = _SAMPLE
        self._most = min(self._most, sum(self.sizes.values()))

    def frame(self) -> pd.DataFrame | None:
        """The rows; None if there are no columns or nothing was read."""
        rows = sum(self.sizes.values())
        if not self.sizes or not self.schema.names:
            return None
        unread = pd.Categorical.from_codes(np.zeros(rows, dtype=np.int8), [""])
        columns: dict[str, Any] = {
            name: self._columns.pop(name, unread)
            for name in self.schema.names
            if name in self.read or str(self.schema.field(name).type) != "null"
        }
        places = np.repeat(np.arange(len(self.sizes)), list(self.sizes.values()))
        columns[OWN + "file"] = pd.Categorical.from_codes(places, list(self.sizes))
        if self._responses:
            codes = pd.factorize(np.concatenate(self._responses))[0][: min(rows, self._most)]
            columns[OWN + "completion"] = np.append(codes, np.full(rows - len(codes), np.nan))
        return frame_of_columns(columns)


def _is_number(kind: Any) -> bool:
    text = str(kind).removeprefix("dictionary<values=")
    return text.startswith(("int", "uint", "float", "double", "halffloat", "null"))


def check_names(names: Sequence[str]) -> None:
    """Raises `InputError` if a name comes twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(
                f"The log has the column {name!r} twice, in {listed(names)}: rename one of them."
            )


def arrow_frames(
    files: Sequence[Path], notes: Notes, wanted: Wanted | None = None, most: int | None = None
) -> Iterator[pd.DataFrame]:
    """The rows of all files, or the first of each: a frame for consecutive files with one
    schema."""
    pa = arrow()
    held: Held | None = None
    done: list[Held] = []
    for path in files:
        try:
            with pa.OSFile(str(path)) as source:
                reader = _Parquet(source, held) if path.suffix == ".parquet" else _Ipc(source)
                if held is None or not held.is_of(reader.schema):
                    done += [held] if held else []
                    held = Held(reader.schema, wanted)
                reader.read(path, held, most)
            if moved := BYTES_READ.get():
                moved(path.stat().st_size)
        except InputError:
            raise
        except (OSError, pa.ArrowException, MemoryError, *FAULTS):
            check_no_pointer(path)
            notes[TORN[1]] += 1
            if held is not None:
                held.end_responses()
    done += [held] if held else []
    yield from (frame for held in done if (frame := held.frame()) is not None)


class _Parquet:
    """A file of parquet. The schema is made once for consecutive files that store the same."""

    def __init__(self, source: Any, before: Held | None) -> None:
        self._source = source
        try:
            self._file = self._opened(before.texts if before else [])
        except KeyError:  # the file lacks one of them
            self._file = self._opened([])
        footer = self._file.metadata
        self.stored = footer.schema, (footer.metadata or {}).get(b"ARROW:schema")
        known = before is not None and before.stored == self.stored
        self.schema = before.schema if before and known else self._opened([], footer).schema_arrow

    def _opened(self, texts: Sequence[str], footer: Any = None) -> Any:
        """The file, with these columns as codes."""
        options: dict[str, Any] = {"pre_buffer": False, "buffer_size": _BUFFER}
        options |= {"metadata": footer, "read_dictionary": texts}
        return arrow("pyarrow.parquet").ParquetFile(self._source, **options)

    def read(self, path: Path, held: Held, most: int | None) -> None:
        names, file = [name for name in self.schema.names if name in held.read], self._file
        if held.stored != self.stored:
            held.stored = self.stored
            held.texts = [x for x in names if str(self.schema.field(x).type) in TEXTS]
            file = self._opened(held.texts, file.metadata)
        if held.sample and not most:
            for batch in file.iter_batches(
                _SAMPLE // 8, columns=[held.response], use_threads=False
            ):
                held.add_responses(batch.column(0).slice(0, held.sample))
                if not held.sample:
                    break
        for batch in file.iter_batches(most or ROWS, columns=names, use_threads=False):
            held.add(path, dict(zip(names, batch.columns, strict=True)), len(batch))
            if most:
                break


class _Ipc:
    """The stream format, which `datasets` writes, or the file format."""

    def __init__(self, source: Any) -> None:
        pa = arrow()
        try:
            self._batches = pa.ipc.open_stream(source)
            self.schema = self._batches.schema
        except pa.ArrowInvalid:
            source.seek(0)
            file = pa.ipc.open_file(source)
            self.schema = file.schema
            self._batches = map(file.get_batch, range(file.num_record_batches))

    def read(self, path: Path, held: Held, most: int | None) -> None:
        for batch in self._batches:
            add_batch(path, held, batch.slice(0, most))
            if most:
                break


def add_batch(path: Path, held: Held, batch: Any) -> None:
    """Adds a whole batch to what is held."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if held.sample:
        held.add_responses(columns[held.response].slice(0, held.sample))
    held.add(path, columns, len(batch))


def dataset_frame(source: Any, wanted: Wanted) -> pd.DataFrame:
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
    held, path = None, Path("dataset")
    for table in source.with_format("arrow").iter(batch_size=ROWS):
        held = held or Held(table.schema, wanted)
        for batch in table.to_batches():
            add_batch(path, held, batch)
    frame = None if held is None else held.frame()
    return pd.DataFrame() if frame is None else frame
