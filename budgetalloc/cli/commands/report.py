"""`budgetalloc report`: what became of the rollouts of a finished run."""

import argparse
import shutil
import sys

from budgetalloc.cli.config import Config
from budgetalloc.cli.logs import bar, opened, watched
from budgetalloc.report import as_json, as_text, report
from budgetalloc.report.rivals import POLICIES


def run(args: argparse.Namespace) -> None:
    """Reads the log, prints the report, writes the page."""
    policies = () if args.no_replay else tuple(dict.fromkeys(args.policy or POLICIES))
    for name in policies:
        Config.of(name)  # raises for an unknown name before the log is read
    reading = opened(args)
    with bar("replaying", len(policies) * args.seeds, "runs") as move:
        summary = report(
            reading,
            policies=policies,
            seeds=range(args.seeds),
            steps=args.steps,
            reward_range=reading.reward_range and (0.0, 1.0),  # the reader has mapped the rewards
            workers=args.workers,
            watch=watched(reading),
            progress=lambda ended, _: move(ended),
        )
    if args.html is not None:
        from budgetalloc.report.html import as_html

        args.html.parent.mkdir(parents=True, exist_ok=True)
        args.html.write_text(as_html(summary), encoding="utf-8", errors="backslashreplace")
        print(f"Written: {args.html}", file=sys.stderr)
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    print(as_json(summary) if args.json else as_text(summary, width))
