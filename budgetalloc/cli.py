"""The command line: `budgetalloc demo`."""

import argparse
import sys
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
    args = parser.parse_args(argv)
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


if __name__ == "__main__":
    sys.exit(main())
