"""A ledger that grows: the rows that were appended since the last call."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from budgetalloc.logs.chunk import FAULTS, LARGEST, Notes, Rows, as_integer
from budgetalloc.logs.formats.lines import BYTES, parsed
from budgetalloc.logs.kinds.ledger import RowParser, joined

__all__ = ["Tail"]


class Tail:
    """Follows a ledger. Each call of `news` reads the new lines; an incomplete last line is left for a later call.

    Args:
        path: The ledger, which need not exist yet.

    >>> import tempfile
    >>> from budgetalloc.logs.ledger_writer import LedgerWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer, tail = LedgerWriter(f"{folder}/ledger.jsonl"), Tail(Path(folder, "ledger.jsonl"))
    ...     empty = list(tail.news())
    ...     writer.append(0, ["a", "b"], [1.0, 0.0], [5, 7], [0.5, 0.5], [1, 1])
    ...     writer.resume(0)
    ...     news = list(tail.news())
    >>> empty, news[0].ids_R, news[1]
    ([], ['a', 'b'], 0)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broken = 0
        """Lines that hold no row."""
        self._at = 0
        self._parse = RowParser(Notes(), [math.inf])

    def news(self) -> Iterator[Rows | int]:
        """New rows in the order of the file, and the trainer's step at each resume.

        A resume voids all previous rows of its step and of later ones. If the file was replaced by a shorter one,
        the first item is a step that voids everything.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            if os.fstat(file.fileno()).st_size < self._at:
                self._at = 0
                self._parse = RowParser(Notes(), [math.inf])
                yield -LARGEST
            while True:
                file.seek(self._at)
                block = file.read(BYTES)
                end = block.rfind(b"\n") + 1
                if not end and len(block) < BYTES:
                    return
                self._at += end or len(block)  # a line longer than a block is no row
                yield from self._of(block[:end])

    def _of(self, whole: bytes) -> Iterator[Rows | int]:
        records, broken = parsed(whole.splitlines())
        self.broken += broken
        held = []
        for record in records:
            try:
                row = self._parse(record)
                resumed = as_integer(record["resumed"]) if row is None and "resumed" in record else None
            except FAULTS:
                self.broken += 1
                continue
            if row is not None:
                held.append(row)
            if resumed is not None:
                if held:
                    yield joined(held, True, None)
                held = []
                yield resumed
        if held:
            yield joined(held, True, None)
