"""Columns of Arrow tables as plain Python and NumPy, for readers of parquet, Arrow and datasets."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from budgetalloc.errors import UnsupportedError
from budgetalloc.logs.reading import Reading

BATCH = 65_536  # rows


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


def column(values: Any) -> Any:
    """A column as an array of float64 if it is numeric (NaN: null), else as a list in which equal strings are one."""
    pa = pyarrow()
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return names(values)


def names(values: Any) -> list[Any]:
    """A column as a list, exactly; equal strings are one object, which saves time and memory."""
    pa = pyarrow()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = values.dictionary_encode()
    if not pa.types.is_dictionary(values.type):
        return list(values.to_pylist())
    known = [*values.dictionary.to_pylist(), None]
    return [known[at] for at in values.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False).tolist()]


def schema(path: Path) -> tuple[str, ...] | None:
    """The names of a file's columns, None if it cannot be read."""
    pa = pyarrow()
    try:
        if path.suffix == ".parquet":
            return tuple(pa.parquet.read_schema(path).names)
        with pa.memory_map(str(path)) as file:
            return tuple(_ipc(pa, file).schema.names)
    except (OSError, pa.ArrowException):
        return None


def batches(reading: Reading, path: Path, wanted: Sequence[str]) -> Iterator[Any]:
    """The wanted columns of a file, some thousand rows at a time; moves `reading.done` on.

    A file that cannot be read to its end is read as far as it goes.
    """
    pa = pyarrow()
    start, size = reading.done, path.stat().st_size
    try:
        if path.suffix == ".parquet":
            with pa.parquet.ParquetFile(path) as file:
                rows = 0
                for batch in file.iter_batches(batch_size=BATCH, columns=list(wanted)):
                    rows += batch.num_rows
                    reading.done = start + size * rows // max(file.metadata.num_rows, 1)
                    yield batch
        else:
            with pa.memory_map(str(path)) as source:
                opened = _ipc(pa, source)
                every = (
                    opened
                    if hasattr(opened, "read_next_batch")
                    else map(opened.get_batch, range(opened.num_record_batches))
                )
                for batch in every:
                    reading.done = start + min(source.tell(), size)
                    yield batch.select(list(wanted))
    except (OSError, pa.ArrowException):
        reading.notes["file that cannot be read to its end"] += 1
    reading.done = start + size


def _ipc(pa: ModuleType, source: Any) -> Any:
    """`datasets` writes the stream format, others the file format."""
    try:
        return pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_file(source)
