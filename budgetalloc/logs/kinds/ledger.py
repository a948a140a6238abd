"""The ledger of budgetalloc: JSON lines, appended by `LedgerWriter`; a resumed run marks which steps are void."""

import json
import math
import re
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.logs.base import Ints, Rows, as_id
from budgetalloc.logs.formats.lines import Record, first, lines, parsed_rows
from budgetalloc.logs.reading import Reading
from budgetalloc.logs.steps import ascending

_COLUMNS = ("step", "id", "reward", "length", "predicted", "count")
_KNOWN = {*_COLUMNS, "resumed"}
_STEP = re.compile(rb'"step": ?(-?\d+)')
_every = itemgetter(*_COLUMNS)
_Row = tuple[int, Id, float, int, float, int]


def find(path: Path) -> list[Path]:
    """A ledger; the ledgers directly in a folder; or an empty file, which is the ledger of a run that has not begun."""
    if path.is_dir():
        return [x for x in sorted(path.iterdir()) if x.is_file() and ".jsonl" in x.name and _is_ledger(x)]
    return [path] if _is_ledger(path) or path.stat().st_size == 0 else []


def files(path: Path) -> list[Path]:
    """The file itself."""
    return [path]


def _is_ledger(path: Path) -> bool:
    return any("resumed" in x or all(name in x for name in _COLUMNS) for x in first(path))


def rows(reading: Reading) -> Iterator[Rows]:
    """The rollouts, in two passes: later lines of the file say which earlier steps are void."""
    assert reading.path is not None
    path = reading.path
    resumed, ordered, total = _scan(reading, path)
    if ordered:
        yield from _rows(reading, path, resumed, total)
        return
    torn = reading.notes.copy()
    yield from ascending(lambda: _rows(reading, path, resumed, total), reading.chunk, reading.notes)
    reading.notes.update(torn)


def _scan(reading: Reading, path: Path) -> tuple[list[int], bool, int]:
    """The step of each line that resumes, in order; whether the steps between them ascend; how many lines there are.

    The run may still be writing: lines that it adds after this pass are not read.
    """
    resumed: list[int] = []
    total = 0
    ordered, last = True, -(2**63)
    for held in lines(reading, path):
        total += len(held)
        if any(b'"resumed"' in line for line in held):
            for line in held:
                if b'"resumed"' in line and (step := _resumed(line)) is not None:
                    resumed.append(step)
                    last = -(2**63)
                elif match := _STEP.search(line):
                    ordered, last = ordered and int(match[1]) >= last, int(match[1])
            continue
        step_R = np.array([int(x) for x in _STEP.findall(b"".join(held))])
        if len(step_R):
            ordered = ordered and last <= step_R[0] and bool((np.diff(step_R) >= 0).all())
            last = int(step_R[-1])
    reading.done = 0
    return resumed, ordered, total


def _resumed(line: bytes) -> int | None:
    try:
        return int(json.loads(line)["resumed"])
    except (ValueError, KeyError, TypeError):
        return None


def _rows(reading: Reading, path: Path, resumed: list[int], total: int) -> Iterator[Rows]:
    reading.done = 0
    # A row counts if no later line resumes from its step or an earlier one.
    valid_below = [*np.minimum.accumulate(np.array(resumed, dtype=np.int64)[::-1])[::-1].tolist(), math.inf]
    seen = 0

    def parse(record: Record) -> _Row | None:
        nonlocal seen
        if "resumed" in record:
            int(record["resumed"])
            seen += 1
            return None
        step, name, reward, length, predicted, count = (record[key] for key in _COLUMNS)
        if int(step) >= valid_below[seen]:
            reading.notes["row voided by a resume"] += 1
            return None
        for key in record.keys() - _KNOWN:
            reading.notes[f"unknown column {key!r}"] += 1
        return int(step), as_id(name), _number(reward), int(length), _number(predicted), int(count)

    def at_once(batch: list[Record]) -> Rows | None:
        try:
            part = _joined(list(map(_every, batch)))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        usual = set(map(len, batch)) == {len(_COLUMNS)} and set(map(type, part.ids_R)) <= {int, str}
        return part if usual and (part.step_R < valid_below[seen]).all() else None

    yield from parsed_rows(reading, path, parse, _joined, at_once, total)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _joined(rollouts: list[_Row]) -> Rows:
    steps, ids, rewards, lengths, predicted, counts = zip(*rollouts, strict=True)
    integers: list[Ints] = [np.array(x, dtype=np.int64) for x in (steps, lengths, counts)]
    return Rows(
        integers[0],
        list(ids),
        np.array(rewards, dtype=float),
        integers[1],
        np.array(predicted, dtype=float),
        integers[2],
    )
