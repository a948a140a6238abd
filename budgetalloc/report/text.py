"""The report for a terminal."""

import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from budgetalloc.beliefs.group_kinds import KINDS
from budgetalloc.report.findings import (
    LABELS,
    MEANING,
    doubts_sentences,
    forecast_sentences,
    headline,
    named,
    notes_sentences,
    percent,
    prompts_sentences,
    replay_sentences,
    shortened,
    singles_sentence,
    size_sentence,
    tokens_sentence,
    worst,
)
from budgetalloc.report.policy_replays import LIMITS, Replayed
from budgetalloc.report.summary import Report

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
        unicode: Whether bars are made of block characters; None: if the terminal's encoding has them.
    """
    if unicode is None:
        unicode = shows_bars()
    waste, width = report.waste, max(width, 80)
    kinds = [kind for kind in KINDS if waste.rollouts_SK[:, KINDS.index(kind)].any()]
    shares = waste.shares()
    full = "█" if unicode else "#"

    def wrapped(*sentences: str) -> list[str]:
        """The sentences in lines, none of which begins with a per cent sign."""
        texts = [text.replace(" %", "\xa0%") for text in sentences if text]
        return [line.replace("\xa0", " ") for text in texts for line in textwrap.wrap(text, width)]

    lines = wrapped(f"{shortened(report.name, 200)} ({report.kind})")
    lines += wrapped(size_sentence(waste), *doubts_sentences(report.notes, report.doubts))
    lines += ["", *wrapped(headline(waste, report.missing), tokens_sentence(waste), singles_sentence(waste))]
    room = max(width - 64, 10)
    lines += ["", "WHERE THE ROLLOUTS WENT", ""]
    for kind in kinds:
        bar = full * max(round(shares[kind] * room), 1 if shares[kind] else 0)
        lines.append(f"  {LABELS[kind]:<10}{percent(shares[kind]):>7}  {bar:<{room}}  {MEANING[kind]}".rstrip())

    time = waste.over_time(max(width - 44, 10))
    if len(time) > 1:
        lines += ["", "OVER TIME (each line from its own lowest to its own highest)", ""]
        names = {kind: LABELS[kind] for kind in kinds} | {"success": "success", "surprise": "surprise"}
        for name, label in names.items():
            values = [row[name] for row in time]
            known = [x for x in values if not math.isnan(x)]
            if known:
                ends = f"{percent(min(known)):>7} to {percent(max(known)):>7}"
                lines.append(f"  {label:<10}{ends}  {sparkline(values, unicode)}")
        explanation = "Success: the mean. Surprise: the mean of |success - prediction|."
        lines += wrapped(f"Steps {waste.step_S[0]} to {waste.step_S[-1]}. {explanation}")
    lines += ["", "PROMPTS", "", *wrapped(*prompts_sentences(waste))]
    lines += _worst(worst(waste, report.texts), width)
    lines += ["", "WHAT COULD BE PREDICTED?", "", *wrapped(*forecast_sentences(waste))]
    lines += _tenths(waste.forecast.deciles() if waste.predictable else [], width, full)
    lines += ["", "WHAT OTHER POLICIES WOULD HAVE DRAWN (with as many rollouts per step)", ""]
    if report.replayed is None:
        lines += wrapped(f"Not replayed: {report.why_not}.".replace("..", "."))
    else:
        lines += [*_rivals(report.replayed, width), "", *wrapped(*replay_sentences(report.replayed), *LIMITS)]
    lines += ["", "WHAT WAS LEFT OUT OR ASSUMED", "", *wrapped(*notes_sentences(waste, report.notes, report.doubts))]
    return "\n".join(lines)


def shows_bars() -> bool:
    """Whether the terminal's encoding has the characters of a bar."""
    try:
        _BARS.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _tenths(rows: Sequence[Mapping[str, float]], width: int, full: str) -> list[str]:
    """Predicted against observed success, with a bar for the observed one, after an empty line."""
    lines = ["", f"  {'predicted':>9}  {'success':>12}  {'rollouts':>9}"] if rows else []
    for row in rows:
        bar = full * round(row["success"] * max(width - 46, 10))
        cells = f"  {percent(row['predicted']):>9}  {percent(row['success']):>12}  {row['rollouts']:>9,}"
        lines.append(f"{cells}  {bar}".rstrip())
    return lines


def _worst(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    if not rows:
        return []
    lines = ["", "  most wasted rollouts  of all  success  prompt"]
    for row in rows:
        cells = f"  {row['wasted']:>20,}  {row['rollouts']:>6,}  {row['success']:>7.2f}  "
        lines.append(cells + named(row, max(width - len(cells), 20)))
    return lines


def _rivals(replayed: Replayed, width: int) -> list[str]:
    """The table of policies, with as many columns as fit."""
    first = replayed.rows[0]
    table = [("policy", "in mixed groups", f"more than {first['policy']}", "signal", "modelled", "at least", "at most")]
    for row in replayed.rows:
        table.append((row["policy"], *cells_of(row, first)))
    sizes = [max(len(cells[k]) for cells in table) for k in range(len(table[0]))]
    columns = [k for k in range(len(sizes)) if 2 + sum(sizes[: k + 1]) + 2 * k <= width]
    rows = [[f"{cells[k]:{'<' if k == 0 else '>'}{sizes[k]}}" for k in columns] for cells in table]
    return ["  " + "  ".join(cells).rstrip() for cells in rows]


def cells_of(row: Mapping[str, Any], first: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the table of policies; a policy that may ask for groups of one has "-" for its mixed groups."""
    signal, modelled = percent(row["signal"]), percent(row["modelled"])
    if row["min_group"] == 1:
        return "-", "-", signal, modelled, "-", "-"
    more = "-" if first["min_group"] == 1 else spanned(row, "mixed_rollouts_diff", "+")
    more = "" if row is first else more
    bounds = (percent(row[figure]) for figure in ("at_least", "at_most"))
    return spanned(row, "mixed_rollouts"), more, signal, modelled, *bounds


def spanned(row: Mapping[str, Any], figure: str, sign: str = "-") -> str:
    """A share in per cent with its interval, if it has one."""
    value, low, high = (100 * row[figure + end] for end in ("", "_low", "_high"))
    return f"{value:{sign}.1f} %" + ("" if math.isnan(low) else f" ({low:{sign}.1f} to {high:{sign}.1f})")
