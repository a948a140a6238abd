"""Results of `verifiers`: `traces.jsonl` (an episode a line, since 0.4) or `results.jsonl` (a rollout a line, before).

An evaluation has no training steps. Its rollouts are at step 0, unless a trainer wrote its step into the records.
"""

from collections.abc import Iterator
from pathlib import Path

from budgetalloc.logs.chunk import Rows
from budgetalloc.logs.formats import traces
from budgetalloc.logs.formats.lines import first
from budgetalloc.logs.log_stream import LogStream

__all__ = ["find", "rows"]

_NAMES = ("traces.jsonl", "results.jsonl")


def find(path: Path) -> list[Path]:
    """A file of results, or the file in the folder of an evaluation."""
    if path.is_dir():
        return [x for name in _NAMES if (x := path / name).is_file() and find(x)]
    records = [x for x in first(path, 3) if traces.is_record(x)]
    trained = path.name.startswith("train_rollouts") or any(traces.of_training(x) for x in records)
    return [path] if records and not trained else []


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts, including those of evaluations."""
    return reading.in_order(lambda: traces.rows(reading, reading.location, None, evaluations=True))
