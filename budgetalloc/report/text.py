"""The report for a terminal."""

import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from budgetalloc.report import findings
from budgetalloc.report.findings import LABELS, MEANING, percent
from budgetalloc.report.policy_replays import LIMITS
from budgetalloc.report.summary import Report
from budgetalloc.report.verdict import verdict
from budgetalloc.report.waste import Waste

__all__ = ["as_text", "shows_bars", "sparkline"]

_BARS, _PLAIN = "▁▂▃▄▅▆▇█", ".:-=+*#@"


def sparkline(values: Sequence[float], unicode: bool = True) -> str:
    """One character for each value, from the lowest to the highest; a blank for NaN and infinity.

    >>> sparkline([1, 2, 3, float("nan"), 8]), sparkline([1, 2, 3, 8], unicode=False)
    ('▁▂▃ █', '.:-@')
    """
    marks = _BARS if unicode else _PLAIN
    known = [x for x in values if math.isfinite(x)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    step = (high - low) / (len(marks) - 1) or 1.0
    return "".join(" " if not math.isfinite(x) else marks[round((x - low) / step)] for x in values)


def as_text(report: Report, width: int = 100, *, unicode: bool | None = None) -> str:
    """The report for a terminal.

    Args:
        report: From `report`.
        width: Characters of the longest line, at least 80.
        unicode: Whether bars are made of block characters; None: if the terminal's encoding has
            them.
    """
    if unicode is None:
        unicode = shows_bars()
    waste, width = report.waste, max(width, 80)
    full = "█" if unicode else "#"

    def wrapped(*sentences: str) -> list[str]:
        """The sentences in lines, none of which begins with a per cent sign."""
        texts = [text.replace(" %", "\xa0%") for text in sentences if text]
        return [line.replace("\xa0", " ") for text in texts for line in textwrap.wrap(text, width)]

    lines = wrapped(verdict(report))
    lines += wrapped(
        f"{findings.shortened(report.name, 200)} ({report.kind})", findings.size_sentence(waste)
    )
    lines += wrapped(*findings.doubts_sentences(report.notes, report.doubts))
    lines += ["", *wrapped(findings.headline(waste, report.missing))]
    about = (
        findings.tokens_sentence(waste),
        findings.cost_sentence(waste),
        findings.singles_sentence(waste),
    )
    lines += wrapped(*about)
    lines += ["", "WHERE THE ROLLOUTS WENT", "", *_kinds(waste, width, full)]
    if course := _over_time(waste, width, unicode):
        explanation = "Success: the mean. Surprise: the mean of |success - prediction|."
        lines += ["", "OVER TIME (each line from its own lowest to its own highest)", "", *course]
        lines += wrapped(f"Steps {waste.step_S[0]} to {waste.step_S[-1]}. {explanation}")
    lines += ["", "PROMPTS", "", *wrapped(*findings.prompts_sentences(waste))]
    lines += _worst(findings.worst(waste, report.texts), width)
    lines += ["", "WHAT COULD BE PREDICTED?", "", *wrapped(*findings.forecast_sentences(waste))]
    lines += _tenths(waste.forecast.deciles() if waste.predictable else [], width, full)
    lines += ["", "WHAT OTHER POLICIES WOULD HAVE DRAWN (with as many rollouts per step)", ""]
    if report.replayed is None:
        lines += wrapped(f"Not replayed: {report.why_not.rstrip('.')}.")
    else:
        lines += _fitting(findings.replay_table(report.replayed), width)
        lines += ["", *wrapped(*findings.replay_sentences(report.replayed), *LIMITS)]
    notes = findings.notes_sentences(waste, report.notes, report.doubts)
    return "\n".join([*lines, "", "WHAT WAS LEFT OUT OR ASSUMED", "", *wrapped(*notes)])


def shows_bars() -> bool:
    """Whether the terminal's encoding has the characters of a bar."""
    try:
        _BARS.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _kinds(waste: Waste, width: int, full: str) -> list[str]:
    shares, room, lines = waste.shares(), max(width - 64, 10), []
    for kind in waste.kinds:
        bar = full * max(round(shares[kind] * room), 1)
        lines.append(
            f"  {LABELS[kind]:<10}{percent(shares[kind]):>7}  {bar:<{room}}  {MEANING[kind]}"
        )
    return lines


def _over_time(waste: Waste, width: int, unicode: bool) -> list[str]:
    """A sparkline for each figure; none for a single run of steps."""
    time, lines = waste.over_time(max(width - 44, 10)), []
    for name in (*waste.kinds, "success", "surprise") if len(time) > 1 else ():
        values = [row[name] for row in time]
        known = [x for x in values if not math.isnan(x)]
        ends = f"{percent(min(known)):>7} to {percent(max(known)):>7}"
        lines.append(f"  {LABELS.get(name, name):<10}{ends}  {sparkline(values, unicode)}")
    for name, label in findings.PER_SUCCESS.items() if len(time) > 1 else ():
        values = [row[name] for row in time]
        if known := [x for x in values if not math.isnan(x)]:
            ends = f"{min(known):,.0f} to {max(known):,.0f}"
            lines.append(f"  {label:<17}{ends:>12}  {sparkline(values, unicode)}")
    return lines


def _tenths(rows: Sequence[Mapping[str, float]], width: int, full: str) -> list[str]:
    """Predicted against observed success, with a bar for the observed one, after an empty line."""
    lines = ["", f"  {'predicted':>9}  {'success':>12}  {'rollouts':>9}"] if rows else []
    for row in rows:
        bar = full * round(row["success"] * max(width - 46, 10))
        cells = f"  {percent(row['predicted']):>9}  {percent(row['success']):>12}  {row['rollouts']:>9,}"
        lines.append(f"{cells}  {bar}".rstrip())
    return lines


def _worst(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    lines = ["", "  most wasted rollouts  of all  success  prompt"] if rows else []
    for row in rows:
        cells = f"  {row['wasted']:>20,}  {row['rollouts']:>6,}  {row['success']:>7.2f}  "
        lines.append(cells + findings.named(row, max(width - len(cells), 20)))
    return lines


def _fitting(table: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table, with as many columns as fit."""
    sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
    columns = [k for k in range(len(sizes)) if 2 + sum(sizes[: k + 1]) + 2 * k <= width]
    rows = [[f"{cells[k]:{'<' if k == 0 else '>'}{sizes[k]}}" for k in columns] for cells in table]
    return ["  " + "  ".join(cells).rstrip() for cells in rows]
