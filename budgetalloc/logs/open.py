"""Finished runs as ledgers: `open_log` finds out what wrote a log and reads it in chunks of whole steps.

A kind of log is a module of this package with two functions:

    def find(path: Path) -> list[Path]            # the logs of this kind at a path: itself, or what lies in a folder
    def rows(reading: Reading) -> Iterator[Rows]  # any number of rollouts at a time, steps ascending

`find` is cheap, looks at little, and never raises for a foreign file. `rows` reads `reading.path` (or `reading.source`,
where that is no path) as `reading.prompt_id` and `reading.reward` ask, moves `reading.done` on, and counts in
`reading.notes` whatever it leaves out or assumes: nothing is fatal that concerns single rows, and nothing is silent.
`Reading` does the rest: whole steps, counts, the range of rewards. A module may have `files(path) -> list[Path]`, the
files that are read, in order; without it they are all files at the path. They are what `Reading.total` measures.
"""

import importlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.rewards import check_range
from budgetalloc.errors import InputError, check_choice, check_integer
from budgetalloc.logs.ledger import Ledger
from budgetalloc.logs.rows import Rows as Rows
from budgetalloc.logs.rows import whole_steps

# Kind: the module that reads it. The order is that of the texts of errors.
MODULES = {
    "ledger": "ledger",
    "trl": "trl",
    "verl": "verl",
    "prime-rl": "prime_rl",
    "verifiers": "verifiers",
    "wandb": "wandb_run",
    "dataset": "dataset",
    "counts": "counts",
}
KINDS = tuple(MODULES)
CHUNK = 100_000
Reward = str | Mapping[str, float] | None


class Reading:
    """A log that is read in chunks, each a `Ledger` of whole steps, in ascending steps; from its start at each `iter`.

    Args:
        kind: One of `KINDS`.
        source: What is read: a path, or an object such as a `datasets.Dataset`.
        prompt_id, reward, reward_range, chunk: As in `open_log`.
    """

    def __init__(
        self,
        kind: str,
        source: Any,
        *,
        prompt_id: str | None = None,
        reward: Reward = None,
        reward_range: tuple[float, float] | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.kind = kind
        """What wrote the log, one of `KINDS`."""
        self.source = source
        self.path = Path(source) if isinstance(source, (str, os.PathLike)) else None
        """Where it is, None for an object in memory."""
        self.prompt_id, self.reward, self.reward_range, self.chunk = prompt_id, reward, reward_range, chunk
        self.unit = "rows" if self.path is None else "bytes"
        """Of `total` and `done`: "bytes" of files, "rows" of an object in memory."""
        self.total: int | None = None
        """How much there is to read, None where that is not known."""
        self.done = 0
        """How much of it was read so far."""
        if self.path is not None:
            self.total = sum(x.stat().st_size for x in self.files())
        elif hasattr(source, "__len__"):
            self.total = len(source)
        self.notes: Counter[str] = Counter()
        """What was left out or assumed, and how often; complete after an iteration, begun afresh by the next."""

    def files(self) -> list[Path]:
        """The files that are read, in order."""
        assert self.path is not None
        if hasattr(_module(self.kind), "files"):
            found: list[Path] = _module(self.kind).files(self.path)
            return found
        return sorted(x for x in self.path.rglob("*") if x.is_file()) if self.path.is_dir() else [self.path]

    def __iter__(self) -> Iterator[Ledger]:
        self.notes.clear()
        self.done = 0
        yield from whole_steps(_module(self.kind).rows(self), self.chunk, self.notes, self.reward_range)

    def __repr__(self) -> str:
        return f"Reading({self.kind!r}, {str(self.path or type(self.source).__name__)!r})"


def open_log(
    source: Any,
    *,
    kind: str | None = None,
    prompt_id: str | None = None,
    reward: Reward = None,
    reward_range: tuple[float, float] | None = None,
    chunk: int = CHUNK,
) -> Reading:
    """A log of rollouts, whatever wrote it. Nothing is read before the iteration, beyond what tells the kind.

    Args:
        source: A file, a folder that holds one log, or a `datasets.Dataset`.
        kind: What wrote it, one of `KINDS`; None finds out.
        prompt_id: The column that names prompts; several, with commas between them, name them together. None: a column
            'prompt_id' if there is one, else what the kind has, such as a hash of the prompt's text (that of the TRL
            callback, so that ids agree).
        reward: The column that holds the reward, or a weight for each of several columns, whose weighted sum it is.
            None: what the kind has; several reward functions of TRL are summed with weight 1, and a note says so.
        reward_range: Lowest and highest reward, mapped to 0 and 1. None leaves rewards as they are. Either way a note
            counts what lies outside.
        chunk: Rollouts to hold in memory at a time; more where one step has more.

    Raises:
        InputError: no log there, several (the text lists them), or arguments out of range.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "counts.csv")
    ...     _ = file.write_text("step,prompt_id,successes,rollouts,comment\\n0,a,1,4,\\n0,b,4,4,\\n1,a,x,4,\\n")
    ...     log = open_log(file)
    ...     chunks = list(log)
    >>> log.kind, len(chunks[0].ids_R), chunks[0].rewards_R.mean()
    ('counts', 8, np.float64(0.625))
    >>> sorted(log.notes.items())
    [('broken row', 1), ('length unknown', 8), ("unknown column 'comment'", 3)]
    """
    chunk = check_integer("chunk", chunk, 1)
    reward_range = None if reward_range is None else check_range(reward_range)
    if kind is not None:
        check_choice("kind", kind, KINDS)
    found: Any = source
    if not isinstance(source, (str, os.PathLike)):
        if not hasattr(source, "column_names"):
            raise InputError(
                f"source is a {type(source).__name__}: give the path of a file or folder, or a datasets.Dataset."
            )
        kind = "dataset"
    elif not Path(source).exists():
        raise InputError(f"source={str(source)!r}: there is no such file or folder.")
    else:
        kind, found = _only(Path(source), kind)
    return Reading(kind, found, prompt_id=prompt_id, reward=reward, reward_range=reward_range, chunk=chunk)


def read_all(reading: Reading) -> Ledger:
    """All chunks of a log as one ledger, with one string for each prompt however many rollouts it has."""
    chunks = list(reading)
    same: dict[Id, Id] = {}
    return Ledger(
        np.concatenate([np.zeros(0, dtype=np.int64), *(x.step_R for x in chunks)]),
        [same.setdefault(name, name) for x in chunks for name in x.ids_R],
        np.concatenate([np.zeros(0), *(x.rewards_R for x in chunks)]),
        np.concatenate([np.zeros(0, dtype=np.int64), *(x.lengths_R for x in chunks)]),
        np.concatenate([np.zeros(0), *(x.predicted_R for x in chunks)]),
        np.concatenate([np.zeros(0, dtype=np.int64), *(x.counts_R for x in chunks)]),
        reading.notes["broken row"],
    )


def _module(kind: str) -> ModuleType:
    return importlib.import_module(f"budgetalloc.logs.kinds.{MODULES[kind]}")


def _only(path: Path, kind: str | None) -> tuple[str, Path]:
    """The one log at this path, and its kind."""
    if kind and path.is_file():
        return kind, path
    found = [(name, log) for name in ([kind] if kind else KINDS) for log in _module(name).find(path)]
    if len(found) == 1:
        return found[0]
    if not found:
        what = f"a log of kind {kind!r}" if kind else f"a log of a known kind ({', '.join(KINDS)})"
        raise InputError(
            f"source={str(path)!r}: nothing there is {what}. Give the file or folder that the trainer wrote its "
            "rollouts to, such as the folder 'completions' of TRL (log_completions=True)."
        )
    choices = "\n".join(f"  {log}  (kind={name!r})" for name, log in found)
    raise InputError(f"source={str(path)!r} holds {len(found)} logs. Give one of them, or kind=:\n{choices}")
