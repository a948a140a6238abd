"""What can be known of a train dataset before the run: a local file of JSON lines is read, nothing is downloaded."""

import ast
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.cli.doctor.literals import UNKNOWN, Source
from budgetalloc.errors import InputError
from budgetalloc.logs.formats.lines import open_bytes

_MOST = 1 << 25  # bytes of a file that is read, unpacked
_DEEPEST = 30  # names and methods that are followed
_ROWS = ("shuffle", "sort", "with_format", "flatten_indices", "cast_column")  # methods that keep rows and columns


class Table:
    """Records with the methods of a `datasets.Dataset` that `Prompts` calls, so that the run's own checks apply.

    >>> table = Table([{"prompt": "1 + 1", "answer": "2"}])
    >>> table.column_names, table["prompt"], len(table)
    (['prompt', 'answer'], ['1 + 1'], 1)
    """

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.records = records
        self.column_names = list(dict.fromkeys(name for record in records for name in record))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return [record.get(key) for record in self.records]
        return Table(self.records[key]) if isinstance(key, slice) else self.records[key]

    def select_columns(self, names: Sequence[str]) -> "Table":
        return Table([{name: record.get(name) for name in names} for record in self.records])

    def select(self, indices: Sequence[int]) -> "Table":
        return Table([self.records[at] for at in indices])

    def with_format(self, _: str) -> "Table":
        return self

    def to_pylist(self) -> list[dict[str, Any]]:
        return list(self.records)


@dataclass(frozen=True)
class Data:
    """A train dataset. None: not known.

    Args:
        source: Where it comes from, in words.
        rows, columns, indexable: As of `budgetalloc.trl.compatibility.Facts`.
        table: All its rows, if they could be read.
    """

    source: str
    rows: int | None = None
    columns: tuple[str, ...] | None = None
    indexable: bool | None = None
    table: Table | None = field(default=None, repr=False)

    def length(self) -> float | None:
        """The median length of a prompt in characters; None if it is not known."""
        if self.table is None or "prompt" not in self.table.column_names or not len(self.table):
            return None
        return float(np.median([len(_text(prompt)) for prompt in self.table["prompt"]]))


def _text(prompt: Any) -> str:
    """All text of a prompt, of each message of a conversation."""
    messages = prompt if isinstance(prompt, list) else [prompt]
    texts = (message.get("content") if isinstance(message, dict) else message for message in messages)
    return "".join(text for text in texts if isinstance(text, str))


def read_lines(path: Path) -> Data:
    """A file of JSON lines, plain or gzip, of at most 32 MB.

    Raises:
        InputError: a line is no JSON object, or the file cannot be unpacked.
    """
    raw, file = open_bytes(path)
    with raw:
        try:
            content = file.read(_MOST + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: this file cannot be unpacked: {error}.") from error
    if len(content) > _MOST:
        return Data(f"{path}, too large to be read here", indexable=True)
    records = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: this is not a JSON object: {error}.") from error
        records.append(record)
    return _of_records(str(path), records)


def _of_records(source: str, records: list[dict[str, Any]]) -> Data:
    table = Table(records)
    return Data(source, rows=len(table), columns=tuple(table.column_names), indexable=True, table=table)


def named(name: str) -> Data:
    """The dataset of a file of settings: a local file, or a name on the hub, which is not looked up."""
    if os.path.isfile(name) and name.endswith((".jsonl", ".jsonl.gz", ".json")):
        try:
            return read_lines(Path(name))
        except InputError:
            if not name.endswith(".json"):  # a whole file of JSON is a dataset too
                raise
    return Data(f"{name}{'' if os.path.exists(name) else ' (not a file here)'}", indexable=True)


def of_expression(source: Source, node: ast.expr | None) -> Data:
    """The dataset that an expression of a script makes, as far as the source says it. At most one file is read."""
    seen: set[str] = set()

    def made(node: ast.expr | None, depth: int, read: bool) -> Data:
        unknown = Data("not given" if node is None else f"line {node.lineno}")
        if not depth:
            return unknown
        if isinstance(node, ast.Name):
            every = [] if node.id in seen else source.assigned(node.id)
            seen.add(node.id)
            if len(every) == 1:
                return made(every[0], depth - 1, read)
            any_of = (made(each, depth - 1, False) for each in every)  # dataset = dataset.map(...)
            return next((data for data in any_of if data.indexable is False), unknown)
        if isinstance(node, ast.Subscript):
            return replace(made(node.value, depth - 1, read), rows=None, table=None)
        if not isinstance(node, ast.Call):
            return unknown
        name, where = source.called(node), f"line {node.lineno}: {source.called(node)}(...)"
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name == "load_dataset":
            return _loaded(source, node, read)
        if name == "to_iterable_dataset" or "IterableDataset" in (name, source.name_of(owner) if owner else None):
            return Data(where, indexable=False)
        if name in ("from_list", "from_dict"):
            return _literal(source, node, where)
        if owner is None:
            return Data(where)
        before = made(owner, depth - 1, read)
        if name in _ROWS or before.indexable is False:
            return before
        rows = before.rows if name in ("map", "rename_column", "remove_columns", "add_column") else None
        return Data(before.source, rows=rows, indexable=before.indexable)

    return made(node, _DEEPEST, True)


def _loaded(source: Source, call: ast.Call, read: bool) -> Data:
    given = source.arguments(call, "path", "name", "data_dir", "data_files")
    path, files = given.get("path"), given.get("data_files")
    if given.get("streaming") is True:
        return Data(f"load_dataset({path!r}, streaming=True)", indexable=False)
    if read and path == "json" and isinstance(files, str) and os.path.isfile(files):
        return named(files)
    return Data(f"load_dataset({path!r})", indexable=True if "streaming" not in given and None not in given else None)


def _literal(source: Source, call: ast.Call, where: str) -> Data:
    """`Dataset.from_list` and `from_dict` of what is written out, or of a comprehension over `range`."""
    content = source.expression(call.args[0]) if call.args else None
    records = source.value(content)
    if isinstance(records, dict) and all(isinstance(column, list) for column in records.values()):
        cells = zip(*records.values(), strict=False)
        records = [dict(zip(records, row, strict=True)) for row in cells]
    if isinstance(records, list) and all(isinstance(x, dict) and all(isinstance(k, str) for k in x) for x in records):
        return _of_records(where, records)
    columns = rows_known = None
    if isinstance(content, ast.ListComp) and isinstance(content.elt, ast.Dict):
        keys = [source.value(key) for key in content.elt.keys]
        columns = None if UNKNOWN in keys else tuple(map(str, keys))
        loop, *more = content.generators
        if not more and not loop.ifs and isinstance(loop.iter, ast.Call) and source.called(loop.iter) == "range":
            count = [source.value(x) for x in loop.iter.args]
            rows_known = count[0] if len(count) == 1 and isinstance(count[0], int) else None
    return Data(where, rows=rows_known, columns=columns, indexable=True)
