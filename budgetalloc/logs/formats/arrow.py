"""Columns of Arrow tables as plain Python and NumPy, for readers of parquet, Arrow and datasets."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from budgetalloc.errors import UnsupportedError
from budgetalloc.logs.reading import Reading

BATCH = 65_536  # rows
_NESTED = 256  # rows at a time where cells are lists, which may be long


def pyarrow() -> ModuleType:
    """The library, imported when it is needed; raises `UnsupportedError` where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UnsupportedError(
            f"Reading parquet and Arrow files needs pyarrow ({error}): pip install 'budgetalloc[logs]'."
        ) from error
    return pyarrow  # type: ignore[no-any-return]


def faults() -> tuple[type[Exception], ...]:
    """The exceptions that pyarrow raises for a file or a column that it cannot read."""
    return OSError, pyarrow().ArrowException, KeyError, TypeError, ValueError, OverflowError, MemoryError


def column(values: Any) -> Any:
    """A column as an array of float64 if it is numeric (NaN: null), else as a list in which equal strings are one."""
    pa = pyarrow()
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return names(values)


def names(values: Any) -> list[Any]:
    """A column as a list, exactly; equal strings are one object, which saves time and memory.

    A value without a Python equivalent, such as a date in the year 10,000, becomes an empty cell.
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
    try:
        return scalar.as_py()
    except faults():
        return None


def schema(path: Path) -> tuple[str, ...] | None:
    """The names of a file's columns, None if it cannot be read."""
    pa = pyarrow()
    try:
        if path.suffix == ".parquet":
            return tuple(pa.parquet.read_schema(path).names)
        with pa.OSFile(str(path)) as file:
            return tuple(_ipc(pa, file).schema.names)
    except faults():
        return None


def batches(reading: Reading, path: Path, wanted: Sequence[str]) -> Iterator[Any]:
    """The wanted columns of a file, some thousand rows at a time; moves `reading.done` on.

    A truncated file is read as far as possible. Each batch of rows is validated before use, because pyarrow does not
    check the offsets of a damaged batch, which may point anywhere in memory.
    """
    start, size = reading.done, path.stat().st_size
    every = _parquet(path, wanted) if path.suffix == ".parquet" else _arrow(path, wanted)
    while True:
        try:
            batch, share = next(every)
            batch.validate(full=True)
        except StopIteration:
            break
        except faults():
            reading.notes["file that cannot be read to its end"] += 1
            break
        reading.done = start + int(size * share)
        yield batch
    reading.done = start + size


def _parquet(path: Path, wanted: Sequence[str]) -> Iterator[tuple[Any, float]]:
    """The batches of a parquet file, each with the share of the file that is read by then."""
    pa = pyarrow()
    with pa.parquet.ParquetFile(path) as file:
        nested = any(pa.types.is_nested(file.schema_arrow.field(name).type) for name in wanted)
        rows = 0
        for batch in file.iter_batches(batch_size=_NESTED if nested else BATCH, columns=list(wanted)):
            rows += batch.num_rows
            yield batch, min(rows / max(file.metadata.num_rows, 1), 1.0)


def _arrow(path: Path, wanted: Sequence[str]) -> Iterator[tuple[Any, float]]:
    """The same of an Arrow file in either format."""
    pa = pyarrow()
    size = max(path.stat().st_size, 1)
    with pa.OSFile(str(path)) as source:  # not a memory map: another process may cut the file meanwhile
        opened = _ipc(pa, source)
        stream = hasattr(opened, "read_next_batch")
        every = opened if stream else map(opened.get_batch, range(opened.num_record_batches))
        for batch in every:
            yield batch.select(list(wanted)), min(source.tell() / size, 1.0)


def _ipc(pa: ModuleType, source: Any) -> Any:
    """`datasets` writes the stream format, others the file format."""
    try:
        return pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_file(source)
