"""The log of a command, and a progress bar."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from budgetalloc.logs.ledger import Ledger, read_log


def opened(args: argparse.Namespace, **instead: Any) -> Ledger:
    """Reads the log with the options of the command line; `instead` has values for options that
    were not given."""
    asked = {name: getattr(args, name) for name in ("step", "prompt", "success", "length")}
    asked["reward_range"] = args.reward_range and tuple(args.reward_range)
    if args.reward:
        (column, weight), *others = args.reward
        asked["reward"] = column if weight == 1 and not others else dict(args.reward)
    given = {key: value for key, value in asked.items() if value is not None}
    return read_log(args.log, **(instead | given))


@contextlib.contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr if it is a terminal and tqdm is installed; yields a function that
    moves it."""
    # a bar moves the cursor, which `Plain` would escape
    terminal = getattr(sys.stderr, "stream", sys.stderr)
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda done: None
        return
    hidden = not terminal.isatty()
    with tqdm(
        total=total, desc=what, leave=False, file=terminal, unit=" runs", disable=hidden
    ) as shown:
        yield lambda done: shown.update(done - shown.n) and None
