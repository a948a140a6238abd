"""A `datasets.Dataset`, or Arrow and parquet files. A row is a rollout, or a group."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import InputError
from budgetalloc.logs.ambiguous_columns import resolve_columns
from budgetalloc.logs.chunk import LARGEST, Ints, Rows
from budgetalloc.logs.column_names import Columns, identify_columns, listed
from budgetalloc.logs.columns import numeric, rollouts
from budgetalloc.logs.formats import arrow
from budgetalloc.logs.log_stream import LogStream

__all__ = ["files", "find", "rows"]

_SUFFIXES = (".parquet", ".arrow")
_Names = tuple[str, ...]
_Schemas = dict[Path | None, _Names | None]


def find(path: Path) -> list[Path]:
    """A parquet or Arrow file, a folder of them (as of `Dataset.save_to_disk`), or the splits of a `DatasetDict`."""
    if path.is_file():
        return [path] if path.suffix in _SUFFIXES and not _of_trl(path) else []
    if (path / "dataset_dict.json").exists():
        return [x for x in sorted(path.iterdir()) if (x / "state.json").exists()]
    return [path] if any(not _of_trl(x) for x in files(path)) else []


def _of_trl(path: Path) -> bool:
    return path.name.startswith("completions_")


def files(path: Path) -> list[Path]:
    """The Arrow and parquet files of a dataset, in the order of their names."""
    if path.is_file():
        return [path]
    tables = [x for x in sorted(path.iterdir()) if x.suffix in _SUFFIXES and not x.name.startswith("cache-")]
    return [x for x in tables if x.is_file()]


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rows in ascending steps. A dataset out of order is sorted on disk. Files may differ in their columns."""
    schemas = _schemas(reading)
    columns = {names: _columns(names, path, reading) for path, names in schemas.items() if names is not None}
    if reading.path is not None and not columns:
        raise InputError(f"{reading.path}: none of its files can be read as parquet or Arrow: they are damaged.")
    steps = (lambda: _steps(reading, schemas, columns)) if all(x.step for x in columns.values()) else None
    yield from reading.in_order(lambda: _rollouts(reading, schemas, columns), steps)


def _schemas(reading: LogStream) -> _Schemas:
    """The columns of each file, None if it cannot be read. A dataset in memory is one entry."""
    if reading.path is not None:
        return {path: arrow.schema(path) for path in reading.files()}
    names = reading.source.column_names
    if isinstance(names, dict):
        raise InputError(
            f"source has the splits {listed(list(names))}: give one of them, as source[{next(iter(names), '')!r}]."
        )
    return {None: tuple(names or next(iter(reading.source), ()))}


def _columns(names: _Names, path: Path | None, reading: LogStream) -> Columns:
    columns = identify_columns(names, reading.options)
    if columns is None:
        raise InputError(
            f"source={str(path or type(reading.source).__name__)!r} has the columns {listed(names)}: one must name "
            "prompts, and one must hold rewards. Pass prompt_id= and reward= with the names of these columns."
        )
    return columns


def _steps(reading: LogStream, schemas: _Schemas, columns: dict[_Names, Columns]) -> Iterator[Ints]:
    """The steps only. Rows whose step cannot be read are left out, here and in `_rollouts`."""
    for names, batch in _batches(reading, schemas, {names: [x.step or ""] for names, x in columns.items()}):
        try:
            step_R, _ = numeric(arrow.column(batch.column(columns[names].step)))
        except arrow.faults():
            continue
        with np.errstate(invalid="ignore"):
            yield step_R[(np.abs(step_R) <= LARGEST) & (step_R == np.floor(step_R))].astype(np.int64)


def _rollouts(reading: LogStream, schemas: _Schemas, columns: dict[_Names, Columns]) -> Iterator[Rows]:
    visits: Counter[Id] = Counter()
    first = next(iter(columns), ())
    settled: dict[_Names, Columns] = {}
    for names, batch in _batches(reading, schemas, {names: x.used for names, x in columns.items()}):
        used = columns[names]
        try:
            table = {
                name: arrow.names(batch.column(name)) if name in used.ids else arrow.column(batch.column(name))
                for name in used.used
            }
        except arrow.faults():
            reading.notes["broken row"] += batch.num_rows
            continue
        if names not in settled:
            settled[names] = resolve_columns(table, used, reading.notes)
        if names != first:
            reading.notes["row of a file with other columns than the first one"] += batch.num_rows
        yield from rollouts(table, settled[names], visits, reading.notes, reading.options.max_row)


def _batches(reading: LogStream, schemas: _Schemas, wanted: dict[_Names, list[str]]) -> Iterator[tuple[_Names, Any]]:
    """Record batches of the wanted columns, each with the names of all columns of its file."""
    reading.done = 0
    for path, names in schemas.items():
        if path is not None and names is None:
            reading.notes["file that cannot be read"] += 1
            reading.done += path.stat().st_size
        elif path is not None and names is not None:
            for batch in arrow.batches(reading, path, wanted[names]):
                yield names, batch
        elif names is not None:
            for table in reading.source.select_columns(wanted[names]).with_format("arrow").iter(batch_size=arrow.BATCH):
                reading.done += table.num_rows
                yield names, table
