"""`LogStream`, a log that is read in chunks of whole steps, and `Kind`, the interface of a kind of log."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import InputError, printable
from budgetalloc.logs.chunk import Chunk, Ints, Notes, Range, Reward, Rows
from budgetalloc.logs.steps import MAX_STEP, ascending, whole_steps

__all__ = ["Kind", "LogStream", "ReadOptions", "unreadable"]


class Kind(Protocol):
    """A kind of log: a module of `budgetalloc.logs.kinds` with these two functions.

    It has two more if needed. `files(path)` lists the files of a log in the order in which they are read, if a log is
    not one file. `texts(reading, ids)` gives the texts of prompts: see `LogStream.texts`.
    """

    def find(self, path: Path) -> list[Path]:
        """The logs of this kind at a path: the path itself, or the logs in the folder.

        It opens regular files only, reads little, and never raises for a foreign file.
        """

    def rows(self, reading: "LogStream") -> Iterator[Rows]:
        """The rollouts of a log in ascending steps, any number at a time.

        It reads `reading.location`, or `reading.source` if that is not a path, with the options `reading.options`. It
        updates `reading.done`, and counts omissions and assumptions in `reading.notes`. A single bad row never raises.
        """


@dataclass(frozen=True)
class ReadOptions:
    """How to read a log. The arguments of `budgetalloc.logs.reader.open_log` explain the fields."""

    prompt_id: str | None = None
    reward: Reward = None
    success: str | None = None
    reward_range: Range = None
    chunk: int = 100_000
    max_line: int = 1 << 26
    max_row: int = 100_000
    max_step: int = MAX_STEP


class LogStream:
    """Chunks of whole steps of a log, in ascending order. Each iteration starts at the beginning of the log.

    Args:
        name: The kind of log, one of `budgetalloc.logs.reader.KINDS`.
        kind: The module that reads it.
        source: A path, or an object such as a `datasets.Dataset`.
        options: The options for reading.
    """

    def __init__(self, name: str, kind: Kind, source: Any, options: ReadOptions) -> None:
        self.kind = name
        """The kind of log."""
        self.source = source
        self.path = Path(source) if isinstance(source, (str, os.PathLike)) else None
        """The path of the log, None for an object in memory."""
        self.options, self.reward_range = options, options.reward_range
        self.unit = "rows" if self.path is None else "bytes"
        """The unit of `total` and `done`: "bytes" of files, "rows" of an object in memory."""
        self.total: int | None = None
        """The total amount to read, None if unknown."""
        self.done = 0
        """The amount read so far."""
        self.notes = Notes()
        """What was left out or assumed, and how often. Complete after an iteration, cleared by the next one."""
        self._kind = kind
        if self.path is not None:
            self.total = sum(x.stat().st_size for x in self.files())
        elif hasattr(source, "__len__"):
            self.total = len(source)

    @property
    def location(self) -> Path:
        """The path of a log that is not an object in memory."""
        assert self.path is not None
        return self.path

    def files(self) -> list[Path]:
        """The files to read, in order; none for an object in memory."""
        if self.path is None:
            return []
        files = getattr(self._kind, "files", None)
        return [self.path] if files is None else list(files(self.path))

    def __iter__(self) -> Iterator[Chunk]:
        self.notes.clear()
        self.done = 0
        options = self.options
        try:
            yield from whole_steps(
                self._kind.rows(self), options.chunk, self.notes, options.reward_range, options.max_step
            )
        except OSError as error:
            raise unreadable(self.path, error) from error

    def in_order(
        self, make: Callable[[], Iterator[Rows]], steps: Callable[[], Iterator[Ints]] | None = None
    ) -> Iterator[Rows]:
        """The rows that `make` reads from the start of the log, sorted by their steps. See `ascending`."""

        def restarted() -> Iterator[Rows]:
            self.done = 0
            return make()

        return ascending(restarted, self.options.chunk, self.notes, steps)

    def texts(self, ids: Iterable[Id]) -> dict[Id, str]:
        """The texts of these prompts, where the log has them. Of chat messages, the text of the last one.

        Ledgers of the callback, TRL's completions and CSV files have texts.
        """
        texts = getattr(self._kind, "texts", None)
        return {} if texts is None else texts(self, ids)

    def __repr__(self) -> str:
        return printable(f"LogStream({self.kind!r}, {str(self.path or type(self.source).__name__)!r})")


def unreadable(path: Any, error: OSError) -> InputError:
    """The error for a log whose file or folder cannot be opened or read."""
    return InputError(f"{error.filename or path}: {error.strerror or error}. The log cannot be read.")
