"""Two runs side by side: what they used, what each needed to reach the same reward, and what the
figures do not mean. As text, page and JSON."""

import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.beliefs.rewards import FAILED, KINDS, MIXED
from budgetalloc.logs.progress import Progress
from budgetalloc.logs.records import losses
from budgetalloc.offline.intervals import reached
from budgetalloc.report.html import curves, page
from budgetalloc.report.summary import Report, plain
from budgetalloc.report.text import doubts_sentences, percent, shortened

_Curve = list[tuple[float, float]]  # rollouts so far and the reward then, ascending
_VERSION = 2
_POINTS = 20  # of the curve of the batches' reward
_SPENT = ("rollouts", "tokens", "seconds")
# shares of the way from the lower start to the highest reward that both reached
_LEVELS = (0.5, 0.75, 1.0)
_HELD_OUT = (
    "Held-out reward is on prompts that no step trains on, so it can be compared. One run each: "
    "another seed may reverse the order, and each run needs its own learning rate (docs: Does it "
    "help me?)."
)
CHOSEN = (
    "The reward is that of the prompts that each run chose. A policy that leaves out mastered or "
    "hopeless prompts has another mean than one that takes every prompt in turn, so this does NOT "
    "say which run learned more. Evaluate both runs on held-out prompts "
    "(GRPOConfig(eval_strategy='steps') with an eval_dataset, or callback.held_out()). The "
    "callback writes the evaluations next to the ledger, and this report then compares them."
)
_NO_LEVEL = "No reward above the start was reached by both."
UNTIMED = (
    "Seconds are unknown. They are in the file next to the ledger whose name ends in .progress."
)
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
}


@dataclass(frozen=True, eq=False)
class Side:
    """A run: its report, without a replay, and its seconds and held-out evaluations, if known."""

    report: Report
    progress: Progress

    def sums(self) -> dict[str, Any]:
        """Rollouts, tokens and seconds (without evaluations) up to the end of each step; NaN where
        they are not known for every step."""
        by_step = self.report.by_step
        seconds_S = [self.progress.seconds.get(step, math.nan) for step in by_step.index.tolist()]
        tokens = by_step["tokens"].to_numpy(dtype=np.float64)
        sums = {
            "rollouts": by_step["rollouts"].to_numpy(dtype=np.float64).cumsum(),
            "tokens": tokens.cumsum() + (math.nan if self.report.unmeasured else 0.0),
            "seconds": np.cumsum(seconds_S),
        }
        return {name: x if not np.isnan(x).any() else x * math.nan for name, x in sums.items()}

    def held_out(self) -> dict[str, _Curve]:
        """The reward on held-out prompts, by evaluation set; empty without evaluations."""
        steps_S = self.report.by_step.index
        reached_S = np.concatenate([[0.0], self.sums()["rollouts"]])
        curves = {
            name: [
                (float(reached_S[steps_S.searchsorted(before)]), reward)
                for before, reward in evaluations
                if not math.isnan(reward)
            ]
            for name, evaluations in self.progress.held_out.items()
        }
        return {name: curve for name, curve in curves.items() if curve}

    def batches(self) -> _Curve:
        """The mean reward of the rollouts of consecutive steps, placed at their middle."""
        runs = self.report.over_time(_POINTS)
        ends = np.cumsum([run["rollouts"] for run in runs])
        scored = [(end, run) for end, run in zip(ends, runs, strict=True) if run["rollouts"]]
        return [(float(end - run["rollouts"] / 2), run["reward"]) for end, run in scored]

    def spent(self, rollouts: float) -> list[float]:
        """These rollouts, and the tokens and seconds that they took; NaN for what is not known."""
        sums = {name: np.append(0.0, x) for name, x in self.sums().items()}
        return [float(np.interp(rollouts, sums["rollouts"], sums[name])) for name in _SPENT]

    def figures(self) -> dict[str, Any]:
        """What the run used and reached."""
        run, batches, held_out = self.report, self.batches(), self.held_out()
        last = {name: float(x[-1]) for name, x in self.sums().items()}
        return {
            "log": run.log,
            "kind": run.kind,
            "rollouts": run.rollouts,
            "steps": run.trainer_steps,
            "prompts": run.prompts,
            "tokens": math.nan if math.isnan(last["tokens"]) else int(last["tokens"]),
            "seconds": last["seconds"],
            **{kind: getattr(run, f"share_{kind}") for kind in KINDS},
            "wasted": run.share_wasted,
            "reward_first": batches[0][1],
            "reward_last": batches[-1][1],
            "held_out": {name: [x[0][1], x[-1][1]] for name, x in held_out.items()},
        }


def levels(sides: Sequence[Side], curves: Sequence[_Curve]) -> list[dict[str, Any]]:
    """What both runs needed for the same reward: the highest that both reached, and two on the way
    there. Empty if a curve is, or if the runs never rise.

    Returns:
        For each level its `reward`, and for both runs the `rollouts`, `tokens` and `seconds` when
        it was first reached.
    """
    if not all(curves):
        return []
    low = min(curve[0][1] for curve in curves)
    high = min(max(reward for _, reward in curve) for curve in curves)
    needed = []
    for share in _LEVELS if high > low else ():
        reward = high if share == 1 else low + share * (high - low)
        first = [reached([at for at, _ in x], [seen for _, seen in x], reward) for x in curves]
        spent = [side.spent(rollouts) for side, rollouts in zip(sides, first, strict=True)]
        pairs = map(list, zip(*spent, strict=True))
        needed.append({"reward": reward, **dict(zip(_SPENT, pairs, strict=True))})
    return needed


def comparison_of(one: Side, other: Side) -> dict[str, Any]:
    """The comparison as plain values, NaN for what is not known.

    Keys: `version`; `runs`, two of `log`, `kind`, `rollouts`, `steps`, `prompts`, `tokens`,
    `seconds`, `mixed`, `all_fail`, `all_pass`, `tied`, `single` and `wasted` (shares of rollouts),
    `reward_first`, `reward_last` (of the batches, first and last twentieth), `held_out` (first and
    last reward by evaluation set, "" for the only one); `measured`, what was compared: a list of
    `name` ("held-out reward", with the evaluation set if it has a name, for each that both runs
    have, else "reward of the batches"), `curves`, of both runs (rollouts, reward), and `levels`,
    each with `reward` and, for both runs, `rollouts`, `tokens` and `seconds` when it was first
    reached; `careful`, what the figures do not mean.
    """
    sides = (one, other)
    held_out = [side.held_out() for side in sides]
    curves = {
        f"held-out reward{f' of {name}' if name else ''}": [side[name] for side in held_out]
        for name in held_out[0]
        if name in held_out[1]
    }
    both = bool(curves)
    curves = curves or {"reward of the batches": [side.batches() for side in sides]}
    points = " and ".join(str(len(curve)) for curve in next(iter(curves.values())))
    between = f"Between evaluations ({points} of them) it is interpolated linearly."
    careful = [f"{_HELD_OUT} {between}" if both else CHOSEN]
    ranges = [(side.report.reward_low, side.report.reward_high) for side in sides]
    if ranges[0] != ranges[1]:
        careful.append(
            f"The ranges of the rewards differ, {ranges[0]} and {ranges[1]}: are these the same "
            "rewards?"
        )
    runs = [side.figures() for side in sides]
    careful += [UNTIMED] if any(math.isnan(run["seconds"]) for run in runs) else []
    for letter, side in zip("AB", sides, strict=True):
        run = side.report
        if run.missing_steps:
            careful.append(
                f"The log of {letter} lacks {run.missing_steps:,} of the run's {run.run_steps:,} "
                "steps: nothing above counts them."
            )
        lost = losses(run.notes, run.rollouts, run.unscored)
        careful += [f"Look at {text}, in {letter}." for text in lost]
        careful += doubts_sentences(run)
    return {
        "version": _VERSION,
        "runs": runs,
        "measured": [
            {
                "name": name,
                "curves": [[list(point) for point in curve] for curve in each],
                "levels": levels(sides, each),
            }
            for name, each in curves.items()
        ],
        "careful": careful,
    }


def as_json(comparison: dict[str, Any]) -> str:
    """The comparison as one JSON object; what is not known is null."""
    return json.dumps(plain(comparison), indent=1, allow_nan=False)


def as_text(comparison: dict[str, Any], width: int = 100) -> str:
    """The comparison for a terminal."""
    runs = zip("AB", comparison["runs"], strict=True)
    lines = [
        f"{letter}  {shortened(run['log'], width - 20)} ({run['kind']})" for letter, run in runs
    ]
    rows = [("", "A", "B", "B / A"), *_used_rows(comparison)]
    lines += ["", *(f"  {name:<34}{a:>14}{b:>14}{ratio:>9}".rstrip() for name, a, b, ratio in rows)]
    for text in comparison["careful"]:
        lines += ["", *textwrap.wrap(text, width)]
    for each in comparison["measured"]:
        lines += ["", _heading(each).upper(), ""]
        lines += [] if each["levels"] else [f"  {_NO_LEVEL}"]
        for level in each["levels"]:
            lines.append(f"  reward {level['reward']:.3f}")
            lines += [
                f"    {row[0]:<32}{row[1]:>14}{row[2]:>14}{row[3]:>9}" for row in _level_rows(level)
            ]
    return "\n".join(lines)


def as_html(comparison: dict[str, Any]) -> str:
    """The comparison as one self-contained page."""
    one, other = (shortened(run["log"], 80) for run in comparison["runs"])
    heads = ("A", "B", "B / A")
    return page(
        "comparison.html",
        title=f"budgetalloc report: {one} and {other}",
        one=one,
        other=other,
        careful=comparison["careful"],
        used=_used_rows(comparison),
        measured=[
            {
                "heading": _heading(each),
                "picture": (f"{each['name']} of both runs", _picture(each["curves"])),
                "levels": [
                    ([f"reward {level['reward']:.3f}", *heads], _level_rows(level))
                    for level in each["levels"]
                ],
            }
            for each in comparison["measured"]
        ],
        no_level=_NO_LEVEL,
    )


def _picture(both: Sequence[_Curve]) -> str | None:
    return curves(dict(zip((MIXED, FAILED), both, strict=True))) if all(both) else None


def _heading(measured: dict[str, Any]) -> str:
    return f"Until the same {measured['name']} was reached first"


def _used_rows(comparison: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What each run used and reached: name, A, B, and B / A where that is meaningful; unknown rows
    are left out."""
    rows = []
    values = [dict(run) for run in comparison["runs"]]
    labels = dict(_ROWS)
    for name in dict.fromkeys(name for run in values for name in run["held_out"]):
        for at, which in enumerate(("first", "last")):
            label = f"held-out reward{f' of {name}' if name else ''}, {which}"
            labels[label] = label
            for run in values:
                run[label] = run["held_out"].get(name, (math.nan, math.nan))[at]
    for name, label in labels.items():
        a, b = (run[name] for run in values)
        if math.isnan(a) and math.isnan(b):
            continue
        is_share = name in (*KINDS, "wasted")
        one, other = (
            percent(x) if is_share else _number(x, exact="reward" in label) for x in (a, b)
        )
        ratio = _quotient(a, b) if name in (*_SPENT, "steps", "prompts") else ""
        rows.append((label, one, other, ratio))
    return rows


def _level_rows(level: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What each run needed for a reward, in rollouts, tokens and seconds as far as they are
    known."""
    pairs = [(name, *level[name]) for name in _SPENT]
    return [
        (name, _number(a), _number(b), _quotient(a, b))
        for name, a, b in pairs
        if not (math.isnan(a) and math.isnan(b))
    ]


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
    return "-" if math.isnan(one) or math.isnan(other) or not one else f"{other / one:.2f}"
