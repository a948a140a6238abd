"""The ledger of budgetalloc: JSON lines that `LedgerWriter` appends. A resumed run voids steps with a line."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.rewards import check_range
from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import FAULTS, LARGEST, Ints, Notes, Range, Rows, as_id, as_integer, as_number, mapped
from budgetalloc.logs.formats.lines import Record, first, lines, parsed, parsed_rows
from budgetalloc.logs.log_stream import LogStream
from budgetalloc.logs.prompt_texts import read_texts

__all__ = ["SECOND_RUN", "RowParser", "find", "joined", "rows", "texts"]

_COLUMNS = ("step", "id", "reward", "length", "predicted", "count")
_MARKS = ("resumed", "reward_range")  # a line with one of these keys is not a rollout
_OPTIONAL = ("success", "cost")  # stated by all rows of a step, or by none
_KNOWN = {*_COLUMNS, *_MARKS, *_OPTIONAL, "decision"}
SECOND_RUN = (
    "row of an earlier run in the same file, left out because a later run began anew (use a ledger for each run)"
)
_every = itemgetter(*_COLUMNS)
_Row = tuple[int, Id, float, int, float, int, int, float, float, tuple[Range] | None]


def find(path: Path) -> list[Path]:
    """A ledger, or the ledgers directly in a folder. An empty file is the ledger of a run without steps."""
    if path.is_dir():
        return [x for x in sorted(path.iterdir()) if x.is_file() and ".jsonl" in x.name and _is_ledger(x)]
    return [path] if _is_ledger(path) or path.stat().st_size == 0 else []


def texts(reading: LogStream, ids: Iterable[Id]) -> dict[Id, str]:
    """The texts of these prompts, where the run knew them."""
    return read_texts(reading.location, ids)


def _is_ledger(path: Path) -> bool:
    return any(set(x) in ({"resumed"}, {"reward_range"}) or all(name in x for name in _COLUMNS) for x in first(path))


@dataclass
class _Scan:
    """The result of the first pass. A stretch is a part of the file between two resume lines."""

    resumed: list[int] = field(default_factory=list)
    """The step of each line that resumes."""
    lines: int = 0
    ranges: list[tuple[float, float]] = field(default_factory=list)
    success: bool = False
    """Whether a row states its success."""
    runs: list[Ints] = field(default_factory=list)
    """Stretch, trainer's step and policy's step of the rows, shape (3, _) each; equal successive rows are one."""

    def add(self, steps: Ints) -> None:
        new_R = np.ones(steps.shape[1], dtype=bool)
        new_R[1:] = (np.diff(steps) != 0).any(axis=0)
        self.runs.append(steps[:, new_R])

    def valid_below(self) -> list[float]:
        """For each stretch, the step below which its rows count. Later lines resume from no such step."""
        return [*np.minimum.accumulate(np.array(self.resumed, dtype=np.int64)[::-1])[::-1].tolist(), math.inf]

    def ordered(self) -> bool:
        """Whether the policy's steps ascend, in the rows that count."""
        if not self.runs:
            return True
        stretch_R, trainer_R, policy_R = np.concatenate(self.runs, axis=1)
        counts_R = trainer_R < np.array(self.valid_below())[stretch_R]
        return bool((np.diff(policy_R[counts_R]) >= 0).all())


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts, in two passes, because later lines of the file void earlier steps."""
    path = reading.location
    for argument, own in (("reward", reading.options.reward), ("success", reading.options.success)):
        if own not in (None, argument):
            raise InputError(
                f"{argument}={own!r}: {path} is a ledger, which has one reward and one success. Leave out {argument}=."
            )
    scan = _scan(reading, path)
    seen = reading.notes.copy()
    if scan.ordered():
        reading.notes.clear()
        yield from _rows(reading, path, scan)
    else:
        yield from reading.in_order(lambda: _rows(reading, path, scan))
    for text, count in seen.items():  # the second pass stops before a damaged end of the file
        reading.notes[text] = max(count, reading.notes[text])


def _scan(reading: LogStream, path: Path) -> _Scan:
    """The first pass. Lines that a running process appends after this pass are not read."""
    scan = _Scan()
    for held in lines(reading, path):
        scan.lines += len(held)
        batch, _ = parsed(held)
        if (step_R := _plain_steps(batch)) is not None:
            scan.success |= "success" in batch[0]
            scan.add(np.stack([np.full(len(step_R), len(scan.resumed)), step_R, step_R]))
            continue
        steps: list[tuple[int, int, int]] = []
        for record in batch:
            try:
                if "resumed" in record:
                    scan.resumed.append(as_integer(record["resumed"]))
                elif "reward_range" in record:
                    scan.ranges.append(check_range(record["reward_range"]))
                else:
                    trainer = as_integer(record["step"])
                    steps.append((len(scan.resumed), trainer, as_integer(record.get("decision", trainer))))
                    scan.success |= "success" in record
            except FAULTS:
                pass  # counted in the second pass
        if steps:
            scan.add(np.array(steps, dtype=np.int64).T)
    reading.done = 0
    return scan


def _plain_steps(batch: list[Record]) -> Ints | None:
    """The steps of a batch whose rows have the six columns, and each optional one in all or in none; else None."""
    try:
        step, *_ = zip(*map(_every, batch), strict=True)
    except FAULTS:
        return None
    stated = [sum(name in record for record in batch) for name in _OPTIONAL]
    if not set(stated) <= {0, len(batch)} or set(map(len, batch)) != {len(_COLUMNS) + sum(x > 0 for x in stated)}:
        return None
    if set(map(type, step)) != {int}:
        return None
    return np.array(step, dtype=np.int64) if max(step) <= LARGEST and min(step) >= -LARGEST else None


class RowParser:
    """Parses one record to a row, or to None for a mark and for a void row.

    Args:
        notes: Counts void rows and unknown columns.
        valid_below: For each stretch between two resume lines, the step below which its rows count.
    """

    def __init__(self, notes: Notes, valid_below: Sequence[float]) -> None:
        self.notes, self.valid_below = notes, valid_below
        self.stretch = 0
        self.start: int | None = None  # the first row's step
        self._range: Range = None

    @property
    def limit(self) -> float:
        """The step from which rows of this part of the file are void."""
        return self.valid_below[min(self.stretch, len(self.valid_below) - 1)]

    def __call__(self, record: Record) -> _Row | None:
        if "resumed" in record:
            as_integer(record["resumed"])
            self.stretch += 1
            return None
        if "reward_range" in record:
            self._range = check_range(record["reward_range"])
            return None
        step, name, reward, length, predicted, count = (record[key] for key in _COLUMNS)
        step = as_integer(step)
        decision = as_integer(record.get("decision", step))
        self.start = step if self.start is None else self.start
        if step >= self.limit:
            if self.limit <= self.start:
                self.notes.doubt(SECOND_RUN, 1)
            else:
                self.notes["row voided by a resume"] += 1
            return None
        name, reward, predicted = as_id(name), as_number(reward), as_number(predicted)
        length, count = as_integer(length), as_integer(count)
        stated, success = "success" in record, as_number(record.get("success"))
        cost = as_number(record.get("cost"))
        for key in record.keys() - _KNOWN:
            self.notes.unknown(key, 1)
        ranges = None if stated else (self._range,)
        return decision, name, reward, length, predicted, count, step, success, cost, ranges


def joined(rollouts: list[_Row], explicit: bool, final: Range) -> Rows:
    """At least one row as columns.

    Args:
        rollouts: Rows of a `RowParser`.
        explicit: Whether success is a column. Otherwise it follows from the rewards.
        final: The log's range of rewards.
    """
    decision, ids_R, reward, length, predicted, count, step, success, cost, ranges = zip(*rollouts, strict=True)
    decision_R, length_R, count_R, step_R = (np.array(x, dtype=np.int64) for x in (decision, length, count, step))
    floats = (np.array(x, dtype=np.float64) for x in (reward, predicted, success, cost))
    rewards_R, predicted_R, success_R, costs_R = floats
    for of_reward in set(ranges) - {None}:  # success follows from the reward, by the last range before the row
        at_R = np.array([x == of_reward for x in ranges])
        success_R[at_R] = mapped(rewards_R[at_R], *of_reward)
    stated_R = success_R if explicit else None
    return Rows(decision_R, list(ids_R), rewards_R, length_R, predicted_R, count_R, stated_R, step_R, final, costs_R)


def _rows(reading: LogStream, path: Path, scan: _Scan) -> Iterator[Rows]:
    parse = RowParser(reading.notes, scan.valid_below())
    final = scan.ranges[-1] if scan.ranges else None
    explicit = scan.success or len(set(scan.ranges)) > 1  # otherwise each row's success follows from its reward

    def at_once(batch: list[Record]) -> Rows | None:
        step_R = _plain_steps(batch)
        if step_R is None or explicit != ("success" in batch[0]):
            return None
        try:
            _, ids_R, reward, length, predicted, count = zip(*map(_every, batch), strict=True)
            if not (set(map(type, ids_R)) <= {int, str} and set(map(type, length)) == set(map(type, count)) == {int}):
                return None
            length_R, count_R = (np.array(x, dtype=np.int64) for x in (length, count))
            rewards_R, predicted_R = np.array(reward, dtype=np.float64), np.array(predicted, dtype=np.float64)
            success_R = np.array([record["success"] for record in batch], dtype=np.float64) if explicit else None
            priced = "cost" in batch[0]
            costs_R = np.array([record["cost"] for record in batch], dtype=np.float64) if priced else None
        except FAULTS:
            return None
        floats = (rewards_R, predicted_R, success_R, costs_R)
        if any(x is not None and x.ndim > 1 for x in floats):  # lists in the cells
            return None
        parse.start = int(step_R[0]) if parse.start is None else parse.start
        if any((np.abs(x) > LARGEST).any() for x in (length_R, count_R)) or (step_R >= parse.limit).any():
            return None
        columns = length_R, predicted_R, count_R, success_R, step_R, final, costs_R
        return Rows(step_R, list(ids_R), rewards_R, *columns)  # type: ignore[arg-type]

    yield from parsed_rows(reading, path, parse, lambda rows: joined(rows, explicit, final), at_once, scan.lines)
