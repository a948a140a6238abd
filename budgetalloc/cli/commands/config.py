"""`budgetalloc config`: checks a file of settings, and prints every setting with its value."""

import argparse
import json

from budgetalloc.cli.config import Config
from budgetalloc.cli.config.yaml_file import written

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Prints every setting, or one line if the file has no mistakes."""
    config = Config.read(args.file) if args.file else Config.parse("", "defaults")
    if args.json:
        print(json.dumps(config.as_dict(), indent=1))
    elif args.show:
        print(written(config.as_dict()), end="")
    else:
        print(f"{config.source.file}: {config.build()}, no mistakes found. --show prints every setting.")
