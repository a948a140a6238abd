"""What is known about a train dataset before the run. A local file of JSON lines is read; nothing is downloaded."""

import ast
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.cli.doctor.literals import UNKNOWN, Source
from budgetalloc.errors import InputError
from budgetalloc.logs.records import Notes, lines

__all__ = ["Data", "Table", "named", "of_expression", "read_lines"]

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
    """A train dataset. None: not known."""

    source: str  # where it comes from, in words
    rows: int | None = None
    columns: tuple[str, ...] | None = None
    indexable: bool | None = None  # whether rows can be chosen
    table: Table | None = None  # all rows

    def length(self) -> float | None:
        """The median length of a prompt in characters."""
        if self.table is None or "prompt" not in self.table.column_names or not len(self.table):
            return None
        return float(np.median([len(_text(prompt)) for prompt in self.table["prompt"]]))


def _text(prompt: Any) -> str:
    """The text of a prompt, or of all messages of a conversation."""
    messages = prompt if isinstance(prompt, list) else [prompt]
    texts = (message.get("content") if isinstance(message, dict) else message for message in messages)
    return "".join(text for text in texts if isinstance(text, str))


def read_lines(path: Path) -> Data:
    """A file of JSON lines, plain or gzip. More than 32 MB are not read."""
    content = b""
    for line in lines(path, notes := Notes()):
        content += line
        if len(content) > _MOST:
            break
    if notes:
        raise InputError(f"{path}: this file cannot be unpacked: it ends early.")
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
    """The dataset that an expression of a script makes, as far as the source shows. At most one file is read."""
    seen: set[str] = set()

    def made(node: ast.expr | None, depth: int, read: bool) -> Data:
        unknown = Data("not given" if node is None else f"line {node.lineno}")
        if not depth:
            return unknown
        if isinstance(node, ast.Name):
            values = [] if node.id in seen else source.assigned(node.id)
            seen.add(node.id)
            if len(values) == 1:
                return made(values[0], depth - 1, read)
            datasets = (made(value, depth - 1, False) for value in values)  # dataset = dataset.map(...)
            return next((data for data in datasets if data.indexable is False), unknown)
        if isinstance(node, ast.Subscript):
            return replace(made(node.value, depth - 1, read), rows=None, table=None)
        if not isinstance(node, ast.Call):
            return unknown
        name, where = source.name_of(node.func), f"line {node.lineno}: {source.name_of(node.func)}(...)"
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
    """`Dataset.from_list` or `from_dict` of plain values, or of a comprehension over `range`."""
    content = source.expression(call.args[0]) if call.args else None
    records = source.value(content)
    if isinstance(records, dict) and all(isinstance(column, list) for column in records.values()):
        cells = zip(*records.values(), strict=False)
        records = [dict(zip(records, row, strict=True)) for row in cells]
    if isinstance(records, list) and all(isinstance(x, dict) and all(isinstance(k, str) for k in x) for x in records):
        return _of_records(where, records)
    if not isinstance(content, ast.ListComp) or not isinstance(content.elt, ast.Dict):
        return Data(where, indexable=True)
    keys, (loop, *more), rows = [source.value(key) for key in content.elt.keys], content.generators, None
    if not more and not loop.ifs and isinstance(loop.iter, ast.Call) and source.name_of(loop.iter.func) == "range":
        counts = [source.value(count) for count in loop.iter.args]
        rows = counts[0] if len(counts) == 1 and isinstance(counts[0], int) else None
    return Data(where, rows=rows, columns=None if UNKNOWN in keys else tuple(map(str, keys)), indexable=True)
