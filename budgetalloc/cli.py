"""The command line: `budgetalloc demo` and `budgetalloc methods`."""

import argparse
import itertools
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from budgetalloc import __version__
from budgetalloc.errors import BudgetallocError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 for an error of one line, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="budgetalloc", description="Rollout allocation for RL with verifiable rewards."
    )
    parser.add_argument("--version", action="version", version=f"budgetalloc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="real GRPO on a tiny language model: uniform against adaptive",
        description="Trains a tiny language model twice with TRL's GRPOTrainer and the same number of rollouts: plain, "
        "and with AdaptiveGRPOCallback. Prints a table and writes a picture of both learning curves.",
    )
    demo.add_argument("--steps", type=int, default=150, help="training steps of 256 rollouts (default: %(default)s)")
    demo.add_argument("--learning-rate", type=float, default=3e-4, help="of both runs (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="of both runs (default: %(default)s)")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for results (default: %(default)s)")
    methods = commands.add_parser(
        "methods",
        help="every allocation method: its rule, its source, and what it asks of a trainer",
        description="Prints every allocation method by what it decides: its rule, its source, and what it asks of a "
        "trainer beyond plain GRPO.",
    )
    methods.add_argument("--json", action="store_true", help="the same as JSON")
    args = parser.parse_args(argv)
    if args.command == "methods":
        return _print(_methods_json() if args.json else _methods_table())
    return _demo(args)


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # a reader such as head has seen enough; Python must not flush into the pipe at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _demo(args: argparse.Namespace) -> int:
    try:
        from budgetalloc.testbed.demo import demo as run_demo  # deferred: it loads torch and trl
    except ImportError as error:
        print(f"budgetalloc demo: {error}. Install what it needs: pip install 'budgetalloc[demo]'", file=sys.stderr)
        return 1
    try:
        run_demo(steps=args.steps, learning_rate=args.learning_rate, seed=args.seed, out=args.out)
    except BudgetallocError as error:
        print(f"budgetalloc demo: {error}", file=sys.stderr)
        return 1
    return 0


def _methods_json() -> str:
    from budgetalloc.methods import METHODS

    names = ("name", "decides", "formula", "source", "starves", "note")
    return json.dumps([{name: getattr(m, name) for name in names} | {"needs": m.needs()} for m in METHODS], indent=1)


def _methods_table(width: int = 120) -> str:
    """The table in plain text, no line longer than `width`."""
    from budgetalloc.methods import DECIDES, METHODS, published

    sizes = [max(len(m.name) for m in METHODS), 0, 24, 26]
    sizes[1] = width - sum(sizes) - 2 * (len(sizes) - 1)
    lines = [f"{len(METHODS)} methods, {published()} of them published."]
    for decides in DECIDES:
        cells = [(m.name, m.formula, m.source, m.asks()) for m in METHODS if m.decides == decides]
        lines += ["", f"Decides {decides}", "", *_wrapped(("method", "rule", "source", "asks of a trainer"), sizes)]
        lines += [line for cell in cells for line in _wrapped(cell, sizes)]
    return "\n".join(lines)


def _wrapped(cells: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """One row of a table, on as many lines as its longest cell needs."""
    parts = [textwrap.wrap(text, size) for text, size in zip(cells, sizes, strict=True)]
    lines = itertools.zip_longest(*parts, fillvalue="")
    return ["  ".join(f"{part:<{size}}" for part, size in zip(line, sizes, strict=True)).rstrip() for line in lines]


if __name__ == "__main__":
    sys.exit(main())
