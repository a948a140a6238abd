"""What can be known of a train dataset before the run: a local file of JSON lines is read, nothing is downloaded."""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.cli.doctor.literals import UNKNOWN, Source
from budgetalloc.errors import BudgetallocError, InputError
from budgetalloc.logs.base import Notes
from budgetalloc.logs.formats.lines import open_bytes, single_lines
from budgetalloc.training.prompts import Prompts

_LONGEST, _MOST = 1 << 24, 1 << 28  # bytes of a line, and of a file that is read
_DEEPEST = 20  # names and methods that are followed
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
        kind: Its type.
        rows, columns, indexable: As of `budgetalloc.trl.served.Facts`.
        table: All its rows, if they could be read.
    """

    source: str
    kind: str = "Dataset"
    rows: int | None = None
    columns: tuple[str, ...] | None = None
    indexable: bool | None = None
    table: Table | None = field(default=None, repr=False)

    def prompts(self, prompt_id: str) -> Prompts | None:
        """The prompts of the rows; None if these are not known. Raises what the run would raise."""
        return None if self.table is None else Prompts(self.table, prompt_id)

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
    """A file of JSON lines, plain or gzip.

    Raises:
        InputError: a line is no JSON object, or longer than 16 MB.
    """
    if path.stat().st_size > _MOST:
        return Data(f"{path}, too large to be read here", indexable=True)
    records = []
    raw, file = open_bytes(path)
    with raw:
        for number, line in enumerate(single_lines(file, Notes(), _LONGEST), 1):
            if line.isspace():
                continue
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError("no object")
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}, line {number}: this is not a JSON object: {error}.") from error
            records.append(record)
    table = Table(records)
    return Data(str(path), rows=len(table), columns=tuple(table.column_names), indexable=True, table=table)


def named(name: str) -> Data:
    """The dataset of a file of settings: a local file, or a name on the hub, which is not looked up."""
    path = Path(name)
    if path.is_file() and path.name.endswith((".jsonl", ".jsonl.gz", ".json")):
        try:
            return read_lines(path)
        except BudgetallocError:
            if not path.name.endswith(".json"):  # a whole file of JSON is a dataset too
                raise
    where = "" if path.exists() else " (not a file here)"
    return Data(f"{name}{where}", indexable=True)


def of_expression(source: Source, node: ast.expr | None, depth: int = _DEEPEST) -> Data:
    """The dataset that an expression of a script makes, as far as the source says it."""
    every = source.assigned(node) if depth else []
    if len(every) > 1:  # dataset = load_dataset(...), then dataset = dataset.map(...)
        streams = [
            data for data in (of_expression(source, each, depth - 1) for each in every) if data.indexable is False
        ]
        return streams[0] if streams else Data(f"line {every[-1].lineno}")
    expression = source.expression(node) if every else None
    if isinstance(expression, ast.Subscript):
        return replace(of_expression(source, expression.value, depth - 1), rows=None, table=None)
    if not isinstance(expression, ast.Call):
        return Data("not given" if node is None else f"line {node.lineno}")
    return _of_call(source, expression, depth)


def _of_call(source: Source, call: ast.Call, depth: int) -> Data:
    name, where = source.called(call), f"line {call.lineno}: {source.called(call)}(...)"
    if name == "load_dataset":
        return _loaded(source, call)
    if name == "to_iterable_dataset" or "IterableDataset" in ast.unparse(call.func):
        return Data(where, kind="IterableDataset", indexable=False)
    if name in ("from_list", "from_dict"):
        return _literal(source, call, where)
    if isinstance(call.func, ast.Attribute):
        before = of_expression(source, call.func.value, depth - 1)
        if name in _ROWS or before.indexable is False:
            return before
        rows = before.rows if name in ("map", "rename_column", "remove_columns", "add_column") else None
        return Data(before.source, rows=rows, indexable=before.indexable)
    return Data(where)


def _loaded(source: Source, call: ast.Call) -> Data:
    given = source.arguments(call, "path", "name", "data_dir", "data_files")
    path, files = given.get("path"), given.get("data_files")
    if given.get("streaming") is True:
        return Data(f"load_dataset({path!r}, streaming=True)", kind="IterableDataset", indexable=False)
    if path == "json" and isinstance(files, str) and Path(files).is_file():
        return named(files)
    return Data(f"load_dataset({path!r})", indexable=True if "streaming" not in given and None not in given else None)


def _literal(source: Source, call: ast.Call, where: str) -> Data:
    """`Dataset.from_list` and `from_dict` of what is written out, or of a comprehension over `range`."""
    content = source.expression(call.args[0]) if call.args else None
    value = source.value(content)
    if isinstance(value, dict) and all(isinstance(x, list) for x in value.values()):
        rows = [dict(zip(value, cells, strict=False)) for cells in zip(*value.values(), strict=False)]
        return Data(where, rows=len(rows), columns=tuple(value), indexable=True, table=Table(rows))
    if isinstance(value, list) and all(isinstance(x, dict) for x in value):
        table = Table(value)
        return Data(where, rows=len(table), columns=tuple(table.column_names), indexable=True, table=table)
    columns = rows_known = None
    if isinstance(content, ast.ListComp) and isinstance(content.elt, ast.Dict):
        keys = [source.value(key) for key in content.elt.keys]
        columns = None if UNKNOWN in keys else tuple(map(str, keys))
        loop, *more = content.generators
        if not more and not loop.ifs and isinstance(loop.iter, ast.Call) and source.called(loop.iter) == "range":
            count = [source.value(x) for x in loop.iter.args]
            rows_known = count[0] if len(count) == 1 and isinstance(count[0], int) else None
    return Data(where, rows=rows_known, columns=columns, indexable=True)
