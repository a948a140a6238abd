"""`budgetalloc watch`: follows a running training through its ledger."""

import argparse
import contextlib
import math
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from budgetalloc.errors import InputError
from budgetalloc.logs.kinds import ledger
from budgetalloc.logs.progress import Progress, read_progress
from budgetalloc.logs.tail import Tail
from budgetalloc.report.findings import PER_SUCCESS, percent
from budgetalloc.report.live_run import Live, LiveStep
from budgetalloc.report.text import shows_bars, sparkline

__all__ = ["LABELS", "follow", "line", "run", "screen"]

_CLEAR = "\x1b[H\x1b[J"  # to the first line, and no text after it
LABELS = {
    "reward": "reward",
    "success": "success",
    "mixed": "in mixed groups",
    "single": "single rollouts",
    "all_fail": "all fail",
    "all_pass": "all pass",
    "wasted": "without gradient",
    "brier": "brier",
    "length": "tokens a rollout",
    **PER_SUCCESS,
}
_SHARES = ("success", "mixed", "single", "all_fail", "all_pass", "wasted")


def run(args: argparse.Namespace) -> int:
    """Follows the ledger until Ctrl-C."""
    terminal = getattr(sys.stdout, "stream", sys.stdout)
    drawn = terminal.isatty() and not args.once
    with contextlib.suppress(KeyboardInterrupt):  # the usual end
        while (path := _ledger(args.log, waits=not args.once)) is None:
            if drawn:
                terminal.write(f"{_CLEAR}{args.log}: no ledger yet. Ctrl-C ends.\n")
                terminal.flush()
            time.sleep(args.every)
        for live, tail, news in follow(path, args.every, args.once):
            if drawn or args.once:
                if drawn:
                    terminal.write(_CLEAR)
                print(screen(path, live, tail, read_progress(path), shutil.get_terminal_size((100, 24)).columns))
            else:
                seconds = read_progress(path).seconds
                for step in news:
                    print(line(step, seconds.get(step.step, math.nan)))
            sys.stdout.flush()
    return 0


def follow(path: Path, every: float, once: bool) -> Iterator[tuple[Live, Tail, list[LiveStep]]]:
    """Reads the ledger again and again; yields the run so far, and the steps that are new or have changed.

    The last step counts as new only once the file has stopped growing, because it may be half written.
    """
    live, tail, shown = Live(), Tail(path), dict[int, LiveStep]()
    grown = True
    while True:
        before, grown = grown, False
        for news in tail.news():
            live.add(news)
            grown = True
        steps = list(live.steps.values())
        ended = steps if once or not grown else steps[:-1]
        fresh = [step for step in ended if shown.get(step.step) != step]
        shown |= {step.step: step for step in fresh}
        if fresh or grown or before:
            yield live, tail, fresh
        if once:
            return
        time.sleep(every)


def _ledger(path: Path, waits: bool) -> Path | None:
    """The ledger at this path; None if there is none yet."""
    if not path.exists():
        if waits and path.parent.is_dir():
            return None
        raise InputError(f"{path}: there is no such file or folder. Give the ledger of a run (ledger=), or its folder.")
    if path.is_file():
        return path
    logs = ledger.find(path) if path.is_dir() else []
    if len(logs) > 1:
        raise InputError(f"{path} holds {len(logs)} ledgers: give one of {', '.join(x.name for x in logs)}.")
    if not logs and not waits:
        raise InputError(f"{path}: no ledger of budgetalloc. Give the file that ledger= names, or its folder.")
    return logs[0] if logs else None


def line(step: LiveStep, seconds: float) -> str:
    """A step in one line."""
    seen = step.figures()
    parts = [f"step {step.trainer_step}", f"{step.rollouts} rollouts of {step.prompts} prompts"]
    parts += [f"reward {seen['reward']:.3f}", f"mixed {percent(seen['mixed'])}", f"single {percent(seen['single'])}"]
    parts += [] if math.isnan(seen["brier"]) else [f"brier {seen['brier']:.3f}"]
    parts += [f"{step.tokens:,} tokens"] if step.measured else []
    parts += [] if math.isnan(seconds) else [f"{seconds:.1f} s"]
    return "  ".join(parts)


def screen(path: Path, live: Live, tail: Tail, progress: Progress, width: int) -> str:
    """The newest figures and their course since the first step, in one screen."""
    steps = [live.steps[at] for at in sorted(live.steps)]
    if not steps:
        return f"{path}: no step yet. Ctrl-C ends."
    last, tokens = steps[-1], sum(step.tokens for step in steps)
    lines = [f"step {last.trainer_step}  {path}", ""]
    lines.append(f"{live.rollouts:,} rollouts, {len(live.seen_ids):,} prompts seen, {tokens:,} tokens")
    lines += ["", f"  {'':<17}{'newest':>9}  {'lowest to highest':>19}"]
    room = max(width - 50, 10)
    rows = [step.figures() for step in steps]
    for name, label in LABELS.items():
        values = [row[name] for row in rows]
        known = [x for x in values if not math.isnan(x)]
        if known:
            shown = [_shown(name, x) for x in (values[-1], min(known), max(known))]
            course = sparkline(_means(values, room), shows_bars())
            lines.append(f"  {label:<17}{shown[0]:>9}  {shown[1]:>8} to {shown[2]:>7}  {course}")
    if (seconds := progress.seconds.get(last.step)) is not None:
        lines.append(f"  {'seconds a step':<17}{seconds:>9.1f}")
    for before, reward in progress.held_out[-1:]:
        lines.append(f"  {'held-out reward':<17}{reward:>9.3f}  after {before:,} steps")
    lines.append("")
    if tail.broken:
        lines.append(f"{tail.broken:,} lines could not be read.")
    lines.append("The reward is that of the prompts that were chosen: judge by held-out prompts. Ctrl-C ends.")
    return "\n".join(text[: max(width, 40)] for text in lines)


def _shown(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    if name in PER_SUCCESS:
        return f"{value:,.0f}"
    return percent(value) if name in _SHARES else f"{value:.3f}" if name != "length" else f"{value:.1f}"


def _means(values: list[float], most: int) -> list[float]:
    """At most this many means over consecutive values, without NaN.

    >>> _means([1.0, 3.0, 5.0, 7.0], 2)
    [2.0, 6.0]
    """
    size = -(-len(values) // most)
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    known = ([x for x in part if not math.isnan(x)] for part in parts)
    return [sum(part) / len(part) if part else math.nan for part in known]
