"""The log of a command, and progress bars."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from budgetalloc.logs.ledger import Ledger, read_log
from budgetalloc.logs.records import BYTES_READ


def opened(args: argparse.Namespace, **instead: Any) -> Ledger:
    """Reads the log with the options of the command line; `instead` has values for options that
    were not given."""
    asked = {name: getattr(args, name) for name in ("step", "prompt", "success", "length")}
    asked["reward_range"] = args.reward_range and tuple(args.reward_range)
    if args.reward:
        (column, weight), *others = args.reward
        asked["reward"] = column if weight == 1 and not others else dict(args.reward)
    given = {key: value for key, value in asked.items() if value is not None}
    size = size_of(args.log) if sys.stderr.isatty() else 0
    with bar("reading", size, "B") as move:
        before = BYTES_READ.set(move)
        try:
            return read_log(args.log, **(instead | given))
        finally:
            BYTES_READ.reset(before)


def size_of(log: Path) -> int:
    """The bytes of a log, a file or a folder; 0 if there is none yet."""
    return sum(file.stat().st_size for file in (log, *log.rglob("*")) if file.is_file())


@contextlib.contextmanager
def bar(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A progress bar with an estimate, on stderr, if it is a terminal and tqdm is installed; from
    one second on. Yields a function that moves it by so many units."""
    # a bar moves the cursor, which `Plain` would escape
    terminal = getattr(sys.stderr, "stream", sys.stderr)
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda more: None
        return
    given = {"total": total, "desc": what, "unit": unit if unit == "B" else f" {unit}"}
    look = {"leave": False, "file": terminal, "disable": not terminal.isatty(), "delay": 1}
    with tqdm(**given, **look, unit_scale=unit == "B") as shown:
        yield lambda more: shown.update(min(more, total - shown.n)) and None
