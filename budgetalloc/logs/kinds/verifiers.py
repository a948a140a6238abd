"""Results of `verifiers`: `traces.jsonl` (an episode a line, since 0.4) or `results.jsonl` (a rollout a line, before).

An evaluation has no training steps: all its rollouts are of step 0, unless a trainer stamped the records with its own.
"""

from collections.abc import Iterator
from pathlib import Path

from budgetalloc.logs.kinds import traces
from budgetalloc.logs.lines import Record, first, parsed_rows
from budgetalloc.logs.open import Reading, Rows
from budgetalloc.logs.rows import ascending, joined

_NAMES = ("traces.jsonl", "results.jsonl")


def find(path: Path) -> list[Path]:
    """A file of results, or the one in the folder of an evaluation."""
    if path.is_dir():
        return [x for name in _NAMES if (x := path / name).is_file() and find(x)]
    records = [x for x in first(path, 3) if traces.is_record(x)]
    ours = records and not any(traces.of_training(x) for x in records) and not path.name.startswith("train_rollouts")
    return [path] if ours else []


def rows(reading: Reading) -> Iterator[Rows]:
    """The rollouts, evaluations among them."""
    path = reading.path
    assert path is not None

    def parse(record: Record) -> Rows:
        return traces.rows(traces.parse(record, reading), None)

    def make() -> Iterator[Rows]:
        reading.done = 0
        yield from parsed_rows(reading, path, parse, joined)

    yield from ascending(make, reading.chunk, reading.notes)
