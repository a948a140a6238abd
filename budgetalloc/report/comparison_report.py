"""Two runs side by side, as text, page and JSON."""

import json
import math
import textwrap
from typing import Any

from budgetalloc.beliefs.group_kinds import KINDS
from budgetalloc.report.findings import doubts_sentences, percent, shortened
from budgetalloc.report.forecast import share
from budgetalloc.report.html import page
from budgetalloc.report.json_report import plain
from budgetalloc.report.pictures import curves
from budgetalloc.report.run_comparison import Curve, Side, levels

__all__ = ["CHOSEN", "UNTIMED", "as_html", "as_json", "as_text", "comparison_of"]

_VERSION = 1
_HELD_OUT = (
    "Held-out reward is on prompts that no step trains on, so it can be compared. One run each: "
    "another seed may "
    "reverse the order, and each run needs its own learning rate (docs: Does it help me?)."
)
CHOSEN = (
    "The reward is that of the prompts that each run chose. A policy that leaves out mastered or "
    "hopeless prompts "
    "has another mean than one that takes every prompt in turn, so this does NOT say which run "
    "learned more. Evaluate "
    "both runs on held-out prompts (GRPOConfig(eval_strategy='steps') with an eval_dataset, or "
    "callback.held_out()). "
    "The callback writes the evaluations next to the ledger, and this report then compares them."
)
_NO_LEVEL = "No reward above the start was reached by both."
UNTIMED = (
    "Seconds are unknown. They are in the file next to the ledger whose name ends in .progress."
)


def comparison_of(one: Side, other: Side) -> dict[str, Any]:
    """The comparison as plain values, NaN for what is not known.

    Keys: `version`; `runs`, two of `log`, `kind`, `rollouts`, `steps`, `prompts`, `tokens`,
    `seconds`, `mixed`, `all_fail`, `all_pass`, `tied`, `single` and `wasted` (shares of rollouts),
    `reward_first`, `reward_last` (of the batches, first and last twentieth), `held_out_first`,
    `held_out_last`; `measured` ("held-out" or "batches"); `curves`, of both runs (rollouts, reward)
    of what was measured; `levels`, each with `reward` and, for both runs, `rollouts`, `tokens` and
    `seconds` when it was first reached; `careful`, what the figures do not mean.
    """
    held_out = [side.held_out() for side in (one, other)]
    both = all(held_out)
    curves = held_out if both else [side.batches() for side in (one, other)]
    points = " and ".join(str(len(curve)) for curve in curves)
    between = f"Between evaluations ({points} of them) it is interpolated linearly."
    careful = [f"{_HELD_OUT} {between}" if both else CHOSEN]
    ranges = [side.waste.reward_range for side in (one, other)]
    if ranges[0] != ranges[1]:
        careful.append(
            f"The ranges of the rewards differ, {ranges[0]} and {ranges[1]}: are these the same "
            "rewards?"
        )
    careful += [] if all(side.seconds_S is not None for side in (one, other)) else [UNTIMED]
    for letter, side in zip("AB", (one, other), strict=True):
        if side.report.missing[0]:
            gone, steps = side.report.missing
            careful.append(
                f"The log of {letter} lacks {gone:,} of the run's {steps:,} steps: nothing above "
                "counts them."
            )
        careful += doubts_sentences(side.report.notes, side.report.doubts)
    return {
        "version": _VERSION,
        "runs": [_run(side, curve) for side, curve in zip((one, other), held_out, strict=True)],
        "measured": "held-out" if both else "batches",
        "curves": [[list(point) for point in curve] for curve in curves],
        "levels": levels(one, other, curves),
        "careful": careful,
    }


def _run(side: Side, held_out: Curve) -> dict[str, Any]:
    waste, batches = side.waste, side.batches()
    seconds_S, tokens_S = side.seconds_S, side.tokens_S
    first, last = (held_out[0][1], held_out[-1][1]) if held_out else (math.nan, math.nan)
    return {
        "log": side.report.name,
        "kind": side.report.kind,
        "rollouts": waste.rollouts,
        "steps": waste.trainer_steps,
        "prompts": len(waste.ids_P),
        "tokens": math.nan if tokens_S is None else int(tokens_S[-1]),
        "seconds": math.nan if seconds_S is None else float(seconds_S[-1]),
        **waste.shares(),
        "wasted": share(waste.wasted, waste.rollouts),
        "reward_first": batches[0][1],
        "reward_last": batches[-1][1],
        "held_out_first": first,
        "held_out_last": last,
    }


def as_json(comparison: dict[str, Any]) -> str:
    """The comparison as one JSON object; what is not known is null."""
    return json.dumps(plain(comparison), indent=1, allow_nan=False)


_ROWS = {
    "rollouts": "rollouts",
    "steps": "steps",
    "prompts": "prompts",
    "tokens": "tokens",
    "seconds": "seconds",
    "mixed": "in mixed groups",
    "single": "single rollouts",
    "all_fail": "all fail",
    "all_pass": "all pass",
    "wasted": "without gradient (group baseline)",
    "reward_first": "reward of the batches, first",
    "reward_last": "reward of the batches, last",
    "held_out_first": "held-out reward, first",
    "held_out_last": "held-out reward, last",
}
_SHARES = (*KINDS, "wasted")


def as_text(comparison: dict[str, Any], width: int = 100) -> str:
    """The comparison for a terminal."""
    one, other = comparison["runs"]
    lines = [
        f"{letter}  {shortened(run['log'], width - 20)} ({run['kind']})"
        for letter, run in zip("AB", (one, other), strict=True)
    ]
    lines += ["", f"  {'':<34}{'A':>14}{'B':>14}{'B / A':>9}"]
    lines += [
        f"  {row[0]:<34}{row[1]:>14}{row[2]:>14}{row[3]:>9}".rstrip()
        for row in _used_rows(comparison)
    ]
    lines += ["", _heading(comparison).upper(), ""]
    if not comparison["levels"]:
        lines.append(f"  {_NO_LEVEL}")
    for level in comparison["levels"]:
        lines.append(f"  reward {level['reward']:.3f}")
        lines += [
            f"    {row[0]:<32}{row[1]:>14}{row[2]:>14}{row[3]:>9}" for row in _level_rows(level)
        ]
    for text in comparison["careful"]:
        lines += ["", *textwrap.wrap(text, width)]
    return "\n".join(lines)


def _heading(comparison: dict[str, Any]) -> str:
    """What the rows of the levels are about."""
    what = "held-out reward" if comparison["measured"] == "held-out" else "reward of the batches"
    return f"Until the same {what} was reached first"


def _used_rows(comparison: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What each run used and reached: name, A, B, and B / A where that is meaningful; unknown rows
    are left out."""
    one, other = comparison["runs"]
    rows = []
    for name, label in _ROWS.items():
        pair = (one[name], other[name])
        if not all(isinstance(x, float) and math.isnan(x) for x in pair):
            cells = [
                percent(x) if name in _SHARES else _number(x, exact="reward" in name) for x in pair
            ]
            ratio = (
                _quotient(*pair)
                if name in ("rollouts", "steps", "prompts", "tokens", "seconds")
                else ""
            )
            rows.append((label, cells[0], cells[1], ratio))
    return rows


def _level_rows(level: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What each run needed for a reward, in rollouts, tokens and seconds as far as they are
    known."""
    pairs = ((name, *level[name]) for name in ("rollouts", "tokens", "seconds"))
    return [
        (name, _number(a), _number(b), _quotient(a, b))
        for name, a, b in pairs
        if not (math.isnan(a) and math.isnan(b))
    ]


def as_html(comparison: dict[str, Any]) -> str:
    """The comparison as one self-contained page."""
    one, other = (shortened(run["log"], 80) for run in comparison["runs"])
    lines = dict(zip(("mixed", "all_fail"), comparison["curves"], strict=True))
    return page(
        "comparison.html",
        title=f"budgetalloc report: {one} and {other}",
        one=one,
        other=other,
        careful=comparison["careful"],
        used=_used_rows(comparison),
        heading=_heading(comparison),
        picture={"title": "Reward of both runs", "image": curves(lines)}
        if all(lines.values())
        else None,
        levels=[
            ([f"reward {level['reward']:.3f}", "A", "B", "B / A"], _level_rows(level))
            for level in comparison["levels"]
        ],
        no_level=_NO_LEVEL,
    )


def _number(value: float, exact: bool = False) -> str:
    """A count, or with `exact` a reward; "-" if it is not known.

    >>> _number(12345.4), _number(31.25), _number(0.1, exact=True), _number(float("nan"))
    ('12,345', '31.2', '0.100', '-')
    """
    if math.isnan(value):
        return "-"
    if exact:
        return f"{value:.3f}"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:.3g}"


def _quotient(one: float, other: float) -> str:
    """The second as a multiple of the first; "-" if it is not known."""
    return "-" if math.isnan(one) or math.isnan(other) or not one else f"{other / one:.2f}"
