"""Columns of Arrow tables as plain Python and NumPy, for readers of parquet, Arrow and datasets."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from budgetalloc.errors import InputError, imported, printable
from budgetalloc.logs.log_stream import LogStream

__all__ = ["BATCH", "batches", "column", "faults", "names", "parquet", "pyarrow", "schema"]

BATCH = 65_536  # rows
_NESTED = 256  # rows at a time where cells are lists, which may be long
_LINES = 16  # at most 16 * `max_line` bytes of a file are in memory at a time


def pyarrow() -> ModuleType:
    """The library, imported when it is needed; raises `UnsupportedError` if it is not installed."""
    imported("pyarrow.parquet", "Reading parquet and Arrow files", "logs")
    return imported("pyarrow", "Reading parquet and Arrow files", "logs")  # type: ignore[no-any-return]


def faults() -> tuple[type[Exception], ...]:
    """The exceptions that pyarrow raises for a file or a column that it cannot read."""
    return OSError, pyarrow().ArrowException, KeyError, TypeError, ValueError, OverflowError, MemoryError


def column(values: Any) -> Any:
    """A numeric column as an array of float64, NaN for null. Any other column as the list of `names`."""
    pa = pyarrow()
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return names(values)


def names(values: Any) -> list[Any]:
    """A column as a list of exact values. Equal strings are one object, which saves time and memory.

    A value without a Python equivalent, such as a date in the year 10,000, becomes None.
    """
    pa = pyarrow()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = values.dictionary_encode()
    if not pa.types.is_dictionary(values.type):
        return _listed(values)
    known = [*_listed(values.dictionary), None]
    indices = values.indices.cast(pa.int64()).fill_null(len(known) - 1)
    return [known[at] for at in indices.to_numpy(zero_copy_only=False).tolist()]


def _listed(values: Any) -> list[Any]:
    try:
        return list(values.to_pylist())
    except faults():
        return [_value(x) for x in values]


def _value(scalar: Any) -> Any:
    with contextlib.suppress(*faults()):
        return scalar.as_py()
    return None


def schema(path: Path) -> tuple[str, ...] | None:
    """The names of a file's columns, None if the file cannot be read."""
    pa = pyarrow()
    try:
        if path.suffix == ".parquet":
            return tuple(pa.parquet.read_schema(path).names)
        with pa.OSFile(str(path)) as file:
            return tuple(_ipc(pa, file).schema.names)
    except faults():
        return None


def batches(reading: LogStream, path: Path, wanted: Sequence[str]) -> Iterator[Any]:
    """The wanted columns of a file, some thousand rows at a time. Updates `reading.done`.

    A truncated file is read as far as possible. Each batch is validated before use, because pyarrow does not check the
    offsets of a damaged batch, which may point anywhere in memory.
    """
    start, size = reading.done, path.stat().st_size
    every = _parquet(path, wanted, reading.options.max_line) if path.suffix == ".parquet" else _arrow(path, wanted)
    try:
        for batch, share in every:
            batch.validate(full=True)
            reading.done = start + int(size * share)
            yield batch
    except InputError:
        raise
    except faults():
        reading.notes["file that cannot be read to its end"] += 1
    reading.done = start + size


@contextlib.contextmanager
def parquet(path: Path, wanted: Sequence[str], max_line: int, texts: Sequence[str], whole: bool) -> Iterator[Any]:
    """A parquet file, opened after a check that its wanted columns fit into memory.

    A small file may hold much data: compressed pages, one text for a million rows, or a list of one repeated number.

    Args:
        path: The file.
        wanted: The columns to read.
        max_line: The limit is 16 times this, as for a table of W&B.
        texts: The columns of texts to read as a dictionary, in which a repeated text takes memory once.
        whole: Whether all row groups will be in memory together.

    Raises:
        InputError: the wanted columns of a row group (`whole`: of the file) are larger than the limit.
    """
    pa = pyarrow()
    with pa.parquet.ParquetFile(path) as file:
        metadata, types = file.metadata, file.schema_arrow
    sizes = [_unpacked(metadata.row_group(at), wanted, whole) for at in range(metadata.num_row_groups)]
    largest = sum(sizes) if whole else max(sizes, default=0)
    if largest > _LINES * max_line:
        part = "" if whole else f"row group {sizes.index(largest)} of {len(sizes)}: "
        raise InputError(
            f"{path}: {part}the columns {printable(', '.join(wanted))} take {largest:,} bytes of memory, in a file of "
            f"{path.stat().st_size:,}; at most {_LINES} * max_line = {_LINES * max_line:,} are read at once. If you "
            f"trust the file, pass max_line={-(-largest // _LINES):,} or more (--max-line)"
            + ("." if whole else ", or write it again in smaller row groups.")
        )
    plain = (pa.types.is_string, pa.types.is_large_string)
    read_dictionary = [name for name in texts if any(fits(types.field(name).type) for fits in plain)]
    with pa.parquet.ParquetFile(path, metadata=metadata, read_dictionary=read_dictionary) as file:
        yield file


def _unpacked(group: Any, wanted: Sequence[str], whole: bool) -> int:
    """The bytes in memory of the wanted columns of a row group, according to its metadata. Lists, and columns that are
    read as a whole, count at least 8 bytes a value, because equal values take no room in the file."""
    total = 0
    for column in map(group.column, range(group.num_columns)):
        nested = any(column.path_in_schema.startswith(f"{name}.") for name in wanted)
        if nested or column.path_in_schema in wanted:
            values = 8 * column.num_values if nested or whole else 0
            total += max(column.total_uncompressed_size, values)
    return total


def _parquet(path: Path, wanted: Sequence[str], max_line: int) -> Iterator[tuple[Any, float]]:
    """The batches of a parquet file, each with the share of the file that has been read."""
    pa = pyarrow()
    with parquet(path, wanted, max_line, wanted, whole=False) as file:
        nested = any(pa.types.is_nested(file.schema_arrow.field(name).type) for name in wanted)
        rows = 0
        for batch in file.iter_batches(batch_size=_NESTED if nested else BATCH, columns=list(wanted)):
            rows += batch.num_rows
            yield batch, min(rows / max(file.metadata.num_rows, 1), 1.0)


def _arrow(path: Path, wanted: Sequence[str]) -> Iterator[tuple[Any, float]]:
    """The batches of an Arrow file in either format, each with the share of the file that has been read."""
    pa = pyarrow()
    size = max(path.stat().st_size, 1)
    with pa.OSFile(str(path)) as source:  # not a memory map, because another process may truncate the file
        opened = _ipc(pa, source)
        stream = hasattr(opened, "read_next_batch")
        every = opened if stream else map(opened.get_batch, range(opened.num_record_batches))
        for batch in every:
            yield batch.select(list(wanted)), min(source.tell() / size, 1.0)


def _ipc(pa: ModuleType, source: Any) -> Any:
    """A reader of the stream format, which `datasets` writes, or of the file format."""
    try:
        return pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_file(source)
