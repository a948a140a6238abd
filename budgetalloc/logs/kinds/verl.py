"""The rollouts that verl dumps with `trainer.rollout_data_dir`: JSON lines, a file `7.jsonl` for step 7.

A line has input (the prompt with its chat template, as text), output, gts, score, step, and what else the reward
function returned. verl writes no prompt ids, so the text is hashed. It writes no tokens, so lengths are unknown. A step
that a resumed run repeats overwrites its file.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.logs.chunk import Rows, as_id, as_integer, as_number
from budgetalloc.logs.formats.lines import Record, first, parsed_rows
from budgetalloc.logs.log_stream import LogStream

__all__ = ["files", "find", "rows"]

_KNOWN = {"input", "output", "gts", "score", "step"}
_MARKS = ("input", "output", "score")
_Row = tuple[int, Id, float, float]


def find(path: Path) -> list[Path]:
    """A dump, or a folder of them."""
    if path.is_file():
        return [path] if _is_dump(path) else []
    return [path] if any(_is_dump(x) for x in files(path)[:3]) else []


def _is_dump(path: Path) -> bool:
    return any(all(name in x for name in _MARKS) for x in first(path, 3))


def files(path: Path) -> list[Path]:
    """The dumps, in the order of their steps."""
    if path.is_file():
        return [path]
    numbered = ((_number(x), x) for x in path.glob("*.jsonl") if x.is_file())
    return [x for number, x in sorted((number, x) for number, x in numbered if number is not None)]


def _number(path: Path) -> int | None:
    """The step in a file's name, None if there is none."""
    return int(path.stem) if path.stem.isdecimal() and len(path.stem) < 16 else None


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts of each step. A file that holds several steps out of order is sorted on disk."""
    path = reading.location
    if path.is_file():
        yield from reading.in_order(lambda: _file(reading, path, by_name=False))
    else:
        paths = files(path)
        for file in paths:
            yield from _file(reading, file, by_name=len(paths) > 1)


def _file(reading: LogStream, path: Path, by_name: bool) -> Iterator[Rows]:
    known: dict[str, Id] = {}
    options, step = reading.options, _number(path) or 0
    weights = {options.reward: 1.0} if isinstance(options.reward, str) else options.reward or {"score": 1.0}
    used = {*weights, options.prompt_id, options.success, *_KNOWN}

    def parse(record: Record) -> _Row:
        name = record[options.prompt_id or "input"]
        if options.prompt_id is None:
            if not isinstance(name, str):
                raise TypeError("no text")
            name = known.get(name) or known.setdefault(name, text_id(name))
        scores = [(weight, float(record[key])) for key, weight in weights.items() if record.get(key) is not None]
        reward = sum(weight * score for weight, score in scores) if scores else np.nan
        success = np.nan if options.success is None else as_number(record.get(options.success))
        row = step if by_name else as_integer(record.get("step", step)), as_id(name), float(reward), success
        for key in record.keys() - used:
            reading.notes.unknown(key, 1)
        return row

    def joined(rollouts: list[_Row]) -> Rows:
        steps, ids_R, rewards, successes = zip(*rollouts, strict=True)
        rewards_R, success_R = np.array(rewards, dtype=np.float64), np.array(successes, dtype=np.float64)
        success = None if options.success is None else success_R
        return Rows(np.array(steps, dtype=np.int64), list(ids_R), rewards_R, success_R=success)

    yield from parsed_rows(reading, path, parse, joined)
