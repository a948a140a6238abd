"""`budgetalloc COMMAND`, the same as `python -m budgetalloc.cli COMMAND`."""

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from budgetalloc.cli.parser import parser
from budgetalloc.errors import BudgetallocError, installing, printable

INTERRUPTED = 130


class Plain:
    """A text stream that is safe to print to: it escapes control characters, and what its encoding
    lacks.

    Logs, file names and YAML keys may hold terminal escape codes.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.stream.write(printable(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. The answer goes to stdout, all messages to stderr.

    Returns:
        The exit status: 0; 1 after an error, which is printed as one line; 2 for wrong usage; 130
            after Ctrl-C.
    """
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions; argcomplete is optional
        with contextlib.suppress(ImportError):
            importlib.import_module("argcomplete").autocomplete(parser())
        return 1
    with (
        contextlib.redirect_stdout(Plain(sys.stdout)),
        contextlib.redirect_stderr(Plain(sys.stderr)),
    ):
        return answered(parser(), argv)


def answered(options: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Parses the arguments, runs their command and returns the exit status."""
    args = options.parse_args(argv)
    if args.command is None:
        options.print_help(sys.stderr)
        return 2
    status = 0
    try:
        # `methods` loads no pandas
        module = importlib.import_module(f"budgetalloc.cli.commands.{args.command}")
        status = int(module.run(args) or 0)
        sys.stdout.flush()
    except BrokenPipeError:  # a reader such as head closed the pipe, and Python flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt as stop:
        text = str(stop) or "Nothing was written; the same command starts again."
        return _print_error(args, f"stopped by Ctrl-C. {text}", INTERRUPTED)
    except BudgetallocError as error:
        return _print_error(args, error, 1)
    except OSError as error:
        return _print_error(
            args, f"{error.filename}: {error.strerror}" if error.filename else error, 1
        )
    except ImportError as error:
        if (error.name or "budgetalloc").startswith("budgetalloc"):
            raise  # a defect of budgetalloc, not a missing package
        extra = "demo" if args.command == "demo" else "logs"
        return _print_error(args, f"{error}. Install what it needs: {installing(extra)}", 1)
    return status


def _print_error(args: argparse.Namespace, text: object, status: int) -> int:
    print(f"budgetalloc {args.command}: {' '.join(str(text).split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
