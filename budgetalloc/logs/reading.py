"""A log that is read in chunks of whole steps, and what a module must have to be a kind of log."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from budgetalloc.logs.base import Chunk, Reward, Rows
from budgetalloc.logs.steps import whole_steps


class Kind(Protocol):
    """A kind of log: a module of `budgetalloc.logs.kinds` with these three functions."""

    def find(self, path: Path) -> list[Path]:
        """The logs of this kind at a path: the path itself, or what lies in the folder.

        It reads little and never raises for a foreign file.
        """

    def files(self, path: Path) -> list[Path]:
        """The files of one log, in the order in which they are read; `Reading.total` is their size."""

    def rows(self, reading: "Reading") -> Iterator[Rows]:
        """The rollouts of a log, any number at a time, with ascending steps.

        It reads `reading.path` (or `reading.source`, where that is no path) as `reading.prompt_id` and `reading.reward`
        ask, moves `reading.done` on, and counts in `reading.notes` what it leaves out or assumes. A single bad row
        never raises.
        """


class Reading:
    """A log that is read in chunks of whole steps, in ascending steps; each `iter` begins at its start.

    Args:
        name: What wrote the log, one of `budgetalloc.logs.open.KINDS`.
        kind: The module that reads it.
        source: A path, or an object such as a `datasets.Dataset`.
        prompt_id, reward, reward_range, chunk: As in `budgetalloc.logs.open.open_log`.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        source: Any,
        *,
        prompt_id: str | None,
        reward: Reward,
        reward_range: tuple[float, float] | None,
        chunk: int,
    ) -> None:
        self.kind = name
        """What wrote the log."""
        self.source = source
        self.path = Path(source) if isinstance(source, (str, os.PathLike)) else None
        """Where the log is, None for an object in memory."""
        self.prompt_id, self.reward, self.reward_range, self.chunk = prompt_id, reward, reward_range, chunk
        self.unit = "rows" if self.path is None else "bytes"
        """The unit of `total` and `done`: "bytes" of files, "rows" of an object in memory."""
        self.total: int | None = None
        """How much there is to read, None where that is unknown."""
        self.done = 0
        """How much of it was read so far."""
        self.notes: Counter[str] = Counter()
        """What was left out or assumed, and how often; complete after an iteration, cleared by the next one."""
        self._kind = kind
        if self.path is not None:
            self.total = sum(x.stat().st_size for x in self.files())
        elif hasattr(source, "__len__"):
            self.total = len(source)

    def files(self) -> list[Path]:
        """The files that are read, in order; none for an object in memory."""
        return [] if self.path is None else self._kind.files(self.path)

    def __iter__(self) -> Iterator[Chunk]:
        self.notes.clear()
        self.done = 0
        yield from whole_steps(self._kind.rows(self), self.chunk, self.notes, self.reward_range)

    def __repr__(self) -> str:
        return f"Reading({self.kind!r}, {str(self.path or type(self.source).__name__)!r})"
