"""`budgetalloc demo`: the demo of the testbed."""

import argparse

from budgetalloc.cli.config import Config

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Trains, prints the table, writes the results."""
    config = Config.read(args.config) if args.config else Config.parse("")
    from budgetalloc.cli.testbed.demo import (
        demo,  # deferred: a mistake in the file shows before torch and trl are loaded
    )

    seed = int(config.arguments["seed"]) if args.seed is None else args.seed
    demo(steps=args.steps, learning_rate=args.learning_rate, seed=seed, out=args.out, config=config)
