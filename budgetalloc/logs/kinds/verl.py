"""The rollouts that verl dumps with `trainer.rollout_data_dir`: JSON lines, a file `7.jsonl` for step 7.

A line has input (the prompt with its chat template, as text), output, gts, score, step, and what the reward function
returned beside the score. verl has no id of the prompt: its text is hashed. Tokens are not dumped: lengths are unknown.
A step that ran again after a resume overwrote its file.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from budgetalloc.beliefs.ids import Id, text_id
from budgetalloc.logs.base import Rows, as_id
from budgetalloc.logs.formats.lines import Record, first, parsed_rows
from budgetalloc.logs.reading import Reading
from budgetalloc.logs.steps import ascending

_KNOWN = {"input", "output", "gts", "score", "step"}
_MARKS = ("input", "output", "score")
_Row = tuple[int, Id, float]


def find(path: Path) -> list[Path]:
    """A dump, or a folder of them."""
    if path.is_file():
        return [path] if _is_dump(path) else []
    return [path] if any(_is_dump(x) for x in files(path)[:3]) else []


def _is_dump(path: Path) -> bool:
    return any(all(name in x for name in _MARKS) for x in first(path, 3))


def files(path: Path) -> list[Path]:
    """The dumps in the order of their steps."""
    if path.is_file():
        return [path]
    return sorted((x for x in path.glob("*.jsonl") if x.stem.isdecimal()), key=lambda x: int(x.stem))


def rows(reading: Reading) -> Iterator[Rows]:
    """The rollouts of each step; a file that holds several steps out of order is sorted on disk."""
    assert reading.path is not None
    if reading.path.is_file():
        yield from ascending(lambda: _rows(reading, [reading.path]), reading.chunk, reading.notes)  # type: ignore[list-item]
    else:
        yield from _rows(reading, files(reading.path))


def _rows(reading: Reading, paths: list[Path]) -> Iterator[Rows]:
    reading.done = 0
    for path in paths:
        yield from _file(reading, path, by_name=len(paths) > 1)


def _file(reading: Reading, path: Path, by_name: bool) -> Iterator[Rows]:
    known: dict[str, Id] = {}
    step = int(path.stem) if path.stem.isdecimal() else 0
    weights = {"score": 1.0} if reading.reward is None else reading.reward
    weights = {weights: 1.0} if isinstance(weights, str) else weights
    used = {*weights, reading.prompt_id, *_KNOWN}

    def parse(record: Record) -> _Row:
        name = record[reading.prompt_id or "input"]
        if reading.prompt_id is None:
            if not isinstance(name, str):
                raise TypeError("no text")
            name = known.get(name) or known.setdefault(name, text_id(name))
        scores = [record.get(key) for key in weights]
        reward = sum(w * float(x) for w, x in zip(weights.values(), scores, strict=True) if x is not None)
        for key in record.keys() - used:
            reading.notes[f"unknown column {key!r}"] += 1
        missing = all(x is None for x in scores)
        return step if by_name else int(record.get("step", step)), as_id(name), np.nan if missing else reward

    yield from parsed_rows(reading, path, parse, _joined)


def _joined(rollouts: list[_Row]) -> Rows:
    steps, ids, rewards = zip(*rollouts, strict=True)
    return Rows(np.array(steps, dtype=np.int64), list(ids), np.array(rewards, dtype=np.float64))
