"""Two runs side by side, for a terminal and as JSON."""

import json
import math
import textwrap
from typing import Any

from budgetalloc.report.findings import doubts_sentences, percent, shortened
from budgetalloc.report.foresight import share
from budgetalloc.report.machine import plain
from budgetalloc.report.sides import Curve, Level, Side, levels
from budgetalloc.report.waste import MIXED, SINGLE

VERSION = 1
HELD_OUT = (
    "Held-out reward is on prompts that no step trains on, so it can be compared. One run each: another seed may turn "
    "the order round, and each run needs its own learning rate (docs: Does it help me?)."
)
CHOSEN = (
    "The reward is that of the prompts that each run chose. A policy that leaves out what is mastered or hopeless has "
    "another mean than one that takes every prompt in turn, so this does NOT say which run learned more. Evaluate on "
    "held-out prompts in both runs (GRPOConfig(eval_strategy='steps') with an eval_dataset, or callback.held_out()): "
    "the callback writes the evaluations beside the ledger, and this report then compares them."
)
UNTIMED = "Seconds are unknown: a ledger has them in the file beside it that ends in .progress."


def compared(one: Side, other: Side) -> dict[str, Any]:
    """The comparison as plain values, NaN for what is not known.

    Keys: `version`; `runs`, two of `log`, `kind`, `rollouts`, `steps`, `prompts`, `tokens`, `seconds`, `mixed`,
    `single`, `wasted` (shares of rollouts), `reward_first`, `reward_last` (of the batches, first and last twentieth),
    `held_out_first`, `held_out_last`; `measured` ("held-out" or "batches"); `levels`, each with `reward` and, for both
    runs, `rollouts`, `tokens` and `seconds` when it was first reached; `careful`, what the figures do not mean.
    """
    held_out = [side.held_out() for side in (one, other)]
    both = all(held_out)
    curves = held_out if both else [side.batches() for side in (one, other)]
    careful = [HELD_OUT if both else CHOSEN]
    ranges = [side.waste.reward_range for side in (one, other)]
    if ranges[0] != ranges[1]:
        careful.append(f"The ranges of the rewards differ, {ranges[0]} and {ranges[1]}: are these the same rewards?")
    careful += [] if all(side.seconds_S is not None for side in (one, other)) else [UNTIMED]
    for side in (one, other):
        careful += doubts_sentences(side.report.notes, side.report.doubts)
    return {
        "version": VERSION,
        "runs": [_run(side, curve) for side, curve in zip((one, other), held_out, strict=True)],
        "measured": "held-out" if both else "batches",
        "levels": [_level(level) for level in levels(one, other, curves)],
        "careful": careful,
    }


def _run(side: Side, held_out: Curve) -> dict[str, Any]:
    waste, batches = side.waste, side.batches()
    shares, seconds_S, tokens_S = waste.shares(), side.seconds_S, side.tokens_S
    ends = [held_out[0][1], held_out[-1][1]] if held_out else [math.nan, math.nan]
    return {
        "log": side.report.name,
        "kind": side.report.kind,
        "rollouts": waste.rollouts,
        "steps": waste.trainer_steps,
        "prompts": len(waste.ids_P),
        "tokens": math.nan if tokens_S is None else int(tokens_S[-1]),
        "seconds": math.nan if seconds_S is None else float(seconds_S[-1]),
        "mixed": shares[MIXED],
        "single": shares[SINGLE],
        "wasted": share(waste.wasted, waste.rollouts),
        "reward_first": batches[0][1],
        "reward_last": batches[-1][1],
        "held_out_first": ends[0],
        "held_out_last": ends[1],
    }


def _level(level: Level) -> dict[str, Any]:
    made: dict[str, Any] = {"reward": level.reward}
    for at, name in enumerate(("rollouts", "tokens", "seconds")):
        made[name] = [level.one[at], level.other[at]]
    return made


def as_json(said: dict[str, Any]) -> str:
    """The comparison as one JSON object; what is not known is null."""
    return json.dumps(plain(said), indent=1, allow_nan=False)


ROWS = {
    "rollouts": "rollouts",
    "steps": "steps",
    "prompts": "prompts",
    "tokens": "tokens",
    "seconds": "seconds",
    "mixed": "in mixed groups",
    "single": "single rollouts",
    "wasted": "without gradient",
    "reward_first": "reward of the batches, first",
    "reward_last": "reward of the batches, last",
    "held_out_first": "held-out reward, first",
    "held_out_last": "held-out reward, last",
}
_SHARES = ("mixed", "single", "wasted")


def as_text(said: dict[str, Any], width: int = 100) -> str:
    """The comparison for a terminal."""
    one, other = said["runs"]
    lines = [
        f"{letter}  {shortened(run['log'], width - 20)} ({run['kind']})" for letter, run in (("A", one), ("B", other))
    ]
    lines += ["", f"  {'':<30}{'A':>14}{'B':>14}{'B / A':>9}"]
    for name, label in ROWS.items():
        pair = (one[name], other[name])
        if all(isinstance(x, float) and math.isnan(x) for x in pair):
            continue
        cells = [percent(x) if name in _SHARES else number(x) for x in pair]
        ratio = "" if name in _SHARES or "reward" in name or "held" in name else quotient(*pair)
        lines.append(f"  {label:<30}{cells[0]:>14}{cells[1]:>14}{ratio:>9}".rstrip())
    what = "THE SAME HELD-OUT REWARD" if said["measured"] == "held-out" else "THE SAME REWARD OF THE BATCHES"
    lines += ["", f"UNTIL {what} WAS REACHED FIRST", ""]
    if not said["levels"]:
        lines.append("  No reward above the start was reached by both.")
    for level in said["levels"]:
        lines.append(f"  reward {level['reward']:.3f}")
        for name in ("rollouts", "tokens", "seconds"):
            pair = level[name]
            if not all(math.isnan(x) for x in pair):
                cells = [number(x) for x in pair]
                lines.append(f"    {name:<28}{cells[0]:>14}{cells[1]:>14}{quotient(*pair):>9}")
    for text in said["careful"]:
        lines += ["", *textwrap.wrap(text, width)]
    return "\n".join(lines)


def number(value: float) -> str:
    """A count or a reward; "-" if it is not known.

    >>> number(12345.4), number(0.4567), number(float("nan"))
    ('12,345', '0.457', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:.3g}"


def quotient(one: float, other: float) -> str:
    """The second as a multiple of the first; "-" if it is not known."""
    return "-" if math.isnan(one) or math.isnan(other) or not one else f"{other / one:.2f}"
