"""Logs of prime-rl: a file of rollouts for each step, or a stream of episodes.

- `rollouts/step_7/train_rollouts.jsonl`, without rollouts that raised and groups that prime-rl's filters dropped;
- `traces/step_7/train/traces.jsonl`, all episodes that arrived at step 7 (PrimeIntellect-ai/prime-rl,
  `src/prime_rl/monitors/file.py` at 0b77f237);
- one stream `traces.jsonl` of all episodes;
- a folder of the stream in chunks, `00000.jsonl.zst` and so on, of which the last is plain while the run lasts
  (`src/prime_rl/monitors/file/traces/chunks.py` at 551bfc39). Annotations, which repeat what is known of a trace, are
  not read.

Rollouts of evaluations are left out.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from budgetalloc.logs.chunk import Rows
from budgetalloc.logs.formats import traces
from budgetalloc.logs.formats.lines import first
from budgetalloc.logs.log_stream import LogStream

__all__ = ["files", "find", "rows"]

_STEP = re.compile(r"step_(\d{1,15})")
_CHUNK = re.compile(r"(\d{5,15})\.jsonl(\.zst)?")


def find(path: Path) -> list[Path]:
    """The folder of the steps or of the chunks, the file of one step, or the stream of a run. A run's output folder is
    searched too."""
    if path.is_file():
        records = first(path, 3)
        trained = path.name.startswith("train_rollouts.jsonl") or any(traces.of_training(x) for x in records)
        return [path] if trained and any(traces.is_record(x) for x in records) else []
    steps = [x for x in (path, path / "rollouts", path / "traces", path / "run_default" / "rollouts") if _steps(x)]
    folders = [path, *_folders(path), *(inner for x in _folders(path) for inner in _folders(x))]
    folders = [x for x in folders if not _STEP.fullmatch(x.name) and not _STEP.fullmatch(x.parent.name)]
    streams = [x / "traces.jsonl" for x in folders if (x / "traces.jsonl").is_file() and find(x / "traces.jsonl")]
    return steps + sorted(streams) + [x for x in folders if any(find(file) for file in _chunks(x)[:3])]


def _folders(path: Path) -> list[Path]:
    return sorted(x for x in path.glob("*") if x.is_dir())


def files(path: Path) -> list[Path]:
    """The files of training rollouts, in the order of their steps or of the stream."""
    return [path] if path.is_file() else [file for _, file in _steps(path)] or _chunks(path)


def _steps(folder: Path) -> list[tuple[int, Path]]:
    folders = [(int(match[1]), x) for x in folder.glob("step_*") if (match := _STEP.fullmatch(x.name))]
    kinds = ("train*.jsonl*", "train/traces.jsonl")
    return sorted((step, file) for step, x in folders for kind in kinds for file in x.glob(kind) if file.is_file())


def _chunks(folder: Path) -> list[Path]:
    """The chunks of a stream by number. While one is being compressed it has two files, and the plain one is read."""
    found: dict[int, Path] = {}
    for file in sorted(folder.glob("*.jsonl*"), reverse=True):  # 00000.jsonl.zst before 00000.jsonl
        if (match := _CHUNK.fullmatch(file.name)) and file.is_file():
            found[int(match[1])] = file
    return [found[number] for number in sorted(found)]


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts of each step. Those of a stream are in the order in which they arrived."""
    path = reading.location
    if path.is_dir() and (steps := _steps(path)):
        for step, file in steps:
            yield from traces.rows(reading, file, step, evaluations=False)
        return
    place = path.parent.parent if path.parent.name == "train" else path.parent
    if path.is_file() and (match := _STEP.fullmatch(place.name)):
        yield from traces.rows(reading, path, int(match[1]), evaluations=False)
    else:

        def every() -> Iterator[Rows]:  # called again where steps are out of order
            return chain.from_iterable(traces.rows(reading, x, None, evaluations=False) for x in files(path))

        yield from reading.in_order(every)
