"""Logs of prime-rl: `rollouts/step_7/train_rollouts.jsonl`, or one stream `traces.jsonl` of episodes.

The step files lack rollouts that raised and groups that prime-rl's filters dropped. The stream has all rollouts.
Rollouts of evaluations are left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from budgetalloc.logs.chunk import Rows
from budgetalloc.logs.formats import traces
from budgetalloc.logs.formats.lines import first
from budgetalloc.logs.log_stream import LogStream

__all__ = ["files", "find", "rows"]

_STEP = re.compile(r"step_(\d{1,15})")


def find(path: Path) -> list[Path]:
    """The folder of the steps, the file of one step, or the stream of a run. A run's output folder is searched too."""
    if path.is_file():
        records = first(path, 3)
        trained = path.name.startswith("train_rollouts.jsonl") or any(traces.of_training(x) for x in records)
        return [path] if trained and any(traces.is_record(x) for x in records) else []
    steps = [x for x in (path, path / "rollouts", path / "run_default" / "rollouts") if _steps(x)]
    streams = [x for place in ("", "*/", "*/*/") for x in path.glob(f"{place}traces.jsonl") if x.is_file() and find(x)]
    return steps + sorted(streams)


def files(path: Path) -> list[Path]:
    """The files of training rollouts, in the order of their steps."""
    return [path] if path.is_file() else [file for _, file in _steps(path)]


def _steps(folder: Path) -> list[tuple[int, Path]]:
    folders = [(int(match[1]), x) for x in folder.glob("step_*") if (match := _STEP.fullmatch(x.name))]
    return sorted((step, file) for step, x in folders for file in x.glob("train*.jsonl*") if file.is_file())


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts of each step. Those of a stream are in the order in which they arrived."""
    path = reading.location
    if path.is_dir():
        for step, file in _steps(path):
            yield from traces.rows(reading, file, step, evaluations=False)
    elif match := _STEP.fullmatch(path.parent.name):
        yield from traces.rows(reading, path, int(match[1]), evaluations=False)
    else:
        yield from reading.in_order(lambda: traces.rows(reading, path, None, evaluations=False))
