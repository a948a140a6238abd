"""The log of a command: its options, opening it, and a progress bar if stderr is a terminal."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from budgetalloc.cli.argument_types import weighted
from budgetalloc.logs.ledger import Ledger, read_log

__all__ = ["LOG", "bar", "opened", "reading_options"]

LOG = (
    "a finished run: a file or folder of TRL completions (log_completions=True), a verl, prime-rl, "
    "tinker-cookbook or "
    "verifiers dump, a reward profile of NeMo Gym, a saved datasets.Dataset, a CSV or JSON lines "
    "of "
    "rollouts or counts, or a ledger of budgetalloc"
)


def reading_options(to: argparse.ArgumentParser, name: str) -> None:
    """Adds the options that say which log to read and how. `opened` takes their values."""
    to.add_argument("log", type=Path, metavar=name, help=LOG)
    add = to.add_argument_group("reading the log").add_argument
    add("--step", metavar="COLUMN", help="the column of steps")
    add("--prompt", "--prompt-id", metavar="COLUMN", help="the column that names prompts")
    reward = "the column of the reward; repeatable: the reward is then the weighted sum"
    add("--reward", action="append", type=weighted, metavar="COLUMN[=WEIGHT]", help=reward)
    success = (
        "the column of success, from 0 to 1 (default: the log's own success; of several reward "
        "functions the one that "
        "gave 0 and 1 only; else the reward)"
    )
    add("--success", metavar="COLUMN", help=success)
    add("--length", metavar="COLUMN", help="the column of lengths in tokens")
    bounds = "lowest and highest reward (default: 0 1)"
    add("--reward-range", nargs=2, type=float, metavar=("LOW", "HIGH"), help=bounds)


def opened(args: argparse.Namespace, **instead: Any) -> Ledger:
    """Reads the log with the options of `reading_options`; `instead` has values for options that
    were not given."""
    asked = {name: getattr(args, name) for name in ("step", "prompt", "success", "length")}
    asked["reward_range"] = args.reward_range and tuple(args.reward_range)
    if args.reward:
        (column, weight), *others = args.reward
        asked["reward"] = column if weight == 1 and not others else dict(args.reward)
    given = {key: value for key, value in asked.items() if value is not None}
    return read_log(args.log, **(instead | given))


@contextlib.contextmanager
def bar(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr from the first update on; none if stderr is no terminal or tqdm is
    missing."""
    # a bar moves the cursor, which `Plain` would escape
    terminal = getattr(sys.stderr, "stream", sys.stderr)
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if tqdm is None or not terminal.isatty():
        yield lambda done: None
        return
    with contextlib.ExitStack() as stack:
        shown: list[Any] = []

        def move(done: int) -> None:
            if not shown:
                made = tqdm(total=total, desc=what, leave=False, file=terminal, unit=f" {unit}")
                shown.append(stack.enter_context(made))
            shown[0].update(done - shown[0].n)

        yield move
