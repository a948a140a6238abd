"""`budgetalloc report`: what the rollouts of a finished run were spent on."""

import argparse
import contextlib
import shutil
import sys
import time
from pathlib import Path

from budgetalloc.cli.reading import bar, opened, size_of
from budgetalloc.errors import BudgetallocError, InputError
from budgetalloc.logs.progress import Progress, read_progress
from budgetalloc.report import Report, as_json, as_text, comparison, report
from budgetalloc.report.replays import POLICIES
from budgetalloc.training.policy_like import resolve_policy

STOPPED = (
    "The comparison of policies has those that were complete. It is shorter with fewer --policy, "
    "--seeds or --steps, or left out with --no-replay."
)
SECONDS = 3.0  # between two looks at a log that `--follow` follows


def run(args: argparse.Namespace) -> None:
    """Reads the log, prints the report and writes the page. Two logs are compared."""
    if args.other is not None:
        compare(args)
    elif args.follow:
        follow(args)
    else:
        summary = summary_of(args)
        _show(args, summary)
        if summary.replay_stopped:
            raise KeyboardInterrupt(STOPPED)


def follow(args: argparse.Namespace) -> None:
    """Prints the report, whose first line is a verdict, whenever the log has grown, until
    Ctrl-C."""
    shown = 0
    if not size_of(args.log):
        print(f"Waiting for {args.log}. Ctrl-C ends.", file=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if (size := size_of(args.log)) != shown:
                shown = size
                try:
                    _show(args, summary_of(args))
                except BudgetallocError as error:  # a file may be half written
                    print(f"Not shown: {error}", file=sys.stderr)
                sys.stdout.flush()
            time.sleep(SECONDS)


def _show(args: argparse.Namespace, summary: Report) -> None:
    if args.html is not None:
        from budgetalloc.report.html import as_html

        _write(args.html, as_html(summary))
    print(as_json(summary) if args.json else as_text(summary, _width()))


def summary_of(args: argparse.Namespace) -> Report:
    """The report on the log, with the policies and options of the command line."""
    policies = (
        () if args.no_replay or args.follow else tuple(dict.fromkeys(args.policy or POLICIES))
    )
    for name in policies:
        resolve_policy(name)  # an unknown name is an error before the log is read
    reading = opened(args)
    with bar("replaying", len(policies) * args.seeds, "replays") as move:
        return report(
            reading,
            policies=policies,
            seeds=range(args.seeds),
            steps=args.steps,
            resolution=args.resolution,
            workers=args.workers,
            progress=lambda *_: move(1),
            partial=True,
        )


def compare(args: argparse.Namespace) -> None:
    """Prints two runs side by side."""
    for name, given in (
        ("--policy", args.policy),
        ("--steps", args.steps),
        ("--follow", args.follow or None),
    ):
        if given is not None:
            raise InputError(
                f"{name} is for the report of one run: leave it out, or give one run.",
                argument=name,
            )
    sides = []
    for log in (args.log, args.other):
        reading = opened(argparse.Namespace(**{**vars(args), "log": log}))
        summary = report(reading, policies=(), resolution=args.resolution)
        path = reading.path if reading.kind == "ledger" else None
        sides.append(comparison.Side(summary, Progress() if path is None else read_progress(path)))
    compared = comparison.comparison_of(*sides)
    if args.html is not None:
        _write(args.html, comparison.as_html(compared))
    print(comparison.as_json(compared) if args.json else comparison.as_text(compared, _width()))


def _write(path: Path, page: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8", errors="backslashreplace")
    print(f"Written: {path}", file=sys.stderr)


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 120)
