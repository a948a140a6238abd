"""A report as sentences, which the page shows too, and as text for a terminal."""

import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.rewards import FAILED, MIXED, PASSED, SINGLE, TIED
from budgetalloc.logs.records import NO_STEPS
from budgetalloc.offline.replay import NO_HISTORY
from budgetalloc.report.replays import COLUMNS, LIMITS
from budgetalloc.report.summary import BELIEF, NEAR, Report, share

LABELS = {MIXED: "mixed", FAILED: "all fail", PASSED: "all pass", TIED: "tied", SINGLE: "single"}
MEANING = {
    MIXED: "unequal rewards: the group has a gradient",
    FAILED: "equal rewards, no rollout has success",
    PASSED: "equal rewards, every rollout has success",
    TIED: "equal rewards between the two",
    SINGLE: "the only rollout of its prompt in the step",
}
_PER_SUCCESS = {
    "cost_per_success": "Cost a success, in the unit of the run's cost=",
    "tokens_per_success": "Tokens a success",
}
_BARS, _PLAIN = "▁▂▃▄▅▆▇█", ".:-=+*#@"


def percent(part: float) -> str:
    """A share in per cent; "-" if it is not defined.

    >>> percent(0.4897), percent(float("nan"))
    ('49.0 %', '-')
    """
    return "-" if math.isnan(part) else f"{100 * part:.1f} %"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(name: Id, width: int) -> str:
    """A text on one line of at most `width` characters, without control characters.

    >>> shortened("What is\\n2 + 2?", 10)
    'What is...'
    """
    text = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def named(row: Mapping[str, Any], width: int) -> str:
    """A prompt of `most_wasted` by its id and, if it is known, the beginning of its text.

    >>> named({"id": "4d4db5bbabf3998a", "text": "2 + 2 ="}, 40)
    '4d4db5bbabf3998a  2 + 2 ='
    """
    if not row["text"]:
        return shortened(row["id"], width)
    name = shortened(row["id"], 20)
    return f"{name}  {shortened(row['text'], min(width - len(name) - 2, 60))}"


def headline(run: Report) -> str:
    """How many rollouts were wasted, and how many steps of the run the log lacks."""
    waste = {FAILED: "all failed", PASSED: "all passed", TIED: "had equal rewards in between"}
    parts = [
        f"{percent(x)} in groups that {waste[kind]}"
        for kind, x in run.kinds.items()
        if kind in waste
    ]
    text = f"{percent(run.share_wasted)} of the rollouts gave no gradient under a group baseline: "
    text += f"{', '.join(parts)}."
    if not parts:
        text = "No group has equal rewards: no rollout was wasted under a group baseline."
    elif run.share_single:
        text = (
            f"{percent(run.share_single)} of the rollouts were single, which a group baseline "
            f"cannot use, and {percent(run.share_wasted)} in groups of equal rewards. Both have a "
            f"gradient under a baseline from earlier steps, as adaptive() has."
        )
    if run.share_single == 1:
        text = "Every rollout was a single rollout: there is no group whose rewards could be equal."
    if NO_STEPS in run.doubts:
        text = "The log names no steps, so its groups are not known, nor what was wasted."
    if run.missing_steps:
        here = run.run_steps - run.missing_steps
        text += (
            f" The log has {here:,} of the run's {run.run_steps:,} steps: {run.missing_steps:,} "
            "are missing."
        )
    return text


def size_sentence(run: Report) -> str:
    """How large the log is."""
    steps = _counted(run.steps, "step")
    if run.trainer_steps < run.steps:
        inner = _counted(run.trainer_steps, "training step")
        steps = f"{_counted(run.steps, 'decision')} in {inner}"
    return f"{run.rollouts:,} rollouts in {run.groups:,} groups: {run.prompts:,} prompts, {steps}."


def cost_sentences(run: Report) -> list[str]:
    """How many tokens wasted groups have, what a success cost, and what single rollouts are."""
    lines = ["The log has no lengths, so the number of wasted tokens is unknown."]
    if run.tokens is not None and run.wasted_tokens is not None:
        known = percent(1 - run.unmeasured / run.rollouts)
        known = f"; the lengths of {known} are known" if run.unmeasured else ""
        part = percent(share(run.wasted_tokens, run.tokens))
        lines = [
            f"Tokens in wasted groups: {run.wasted_tokens:,} of {run.tokens:,} ({part}{known})."
        ]
    time = run.over_time(10)
    name = next((name for name in _PER_SUCCESS if not math.isnan(getattr(run, name))), None)
    if name is not None:
        ends = f", {_number(time[0][name])} at first and {_number(time[-1][name])} at the end"
        whole = f"{_PER_SUCCESS[name]}: {_number(getattr(run, name))} over the run"
        lines.append(f"{whole}{ends if len(time) > 1 else ''}.")
    if run.share_single:
        text = (
            f"{percent(run.share_single)} of the rollouts were single rollouts, the only one of "
            "their prompt in the step. Where adaptive() requested them, their baseline is a "
            "prediction from earlier steps, and the gradient is in the difference between success "
            "and prediction."
        )
        if run.share_as_predicted and run.predictable:
            near = percent(run.share_as_predicted)
            text += (
                f" In {near} of all rollouts it was at most {NEAR:g}, so their gradient is small."
            )
        lines.append(text)
    return lines


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def prompts_sentences(run: Report) -> list[str]:
    """How many prompts were never, sometimes and always solved, and their share of the rollouts."""
    lines = []
    rates = run.by_prompt["success"] / run.by_prompt["rollouts"]
    rollouts_P = run.by_prompt["rollouts"].iloc[rates.to_numpy().argsort(kind="stable")]
    ends = run.never_solved, run.prompts - run.always_solved
    for label, start, end in (
        ("Never solved", 0, ends[0]),
        ("Sometimes solved", *ends),
        ("Always solved", ends[1], run.prompts),
    ):
        rollouts = rollouts_P.iloc[start:end]
        each = f" (median {rollouts.median():.0f} each)" if len(rollouts) else ""
        lines.append(
            f"{label}: {len(rollouts):,} of {run.prompts:,} prompts "
            f"({percent(len(rollouts) / run.prompts)}), with "
            f"{percent(rollouts.sum() / run.rollouts)} of the rollouts{each}."
        )
    return lines


def forecast_sentences(run: Report) -> list[str]:
    """How well the success of rollouts was predicted, and how much was not predicted."""
    if not run.predictable:
        return ["No prompt came twice, and the log has no predictions: nothing could be predicted."]
    if math.isnan(run.explained):
        return ["Every rollout had the same success, so there was nothing to predict."]
    logged = 2 * run.success_logged >= run.rollouts
    who = "by the policy of the run" if logged else f"by the belief {BELIEF}"
    lines = [
        f"Success of each rollout, as predicted {who} before its step. The prediction explained "
        f"{percent(run.explained)} of the variance of success (Brier score "
        f"{run.success_brier:.3f}; of the best constant {run.success_brier_constant:.3f}).",
        f"Mean surprise {run.surprise:.2f}: it is |success - prediction|, the size of the "
        "advantage under a baseline from earlier steps.",
    ]
    if run.explained < 0:
        lines.append("The prediction is worse than the constant.")
    if run.graded:
        lines.append(
            "Success is graded. The report's own belief treats a success of 0.3 as 0.3 successes."
        )
    return lines


def replay_sentences(run: Report) -> list[str]:
    """What was replayed, and how to read the table; or why there is no replay."""
    if run.policies is None:
        return [f"Not replayed: {str(run.why_not).rstrip('.')}."]
    steps = _counted(run.replay_steps or 0, "step")
    if (run.replay_steps or 0) < (run.replay_logged or 0):
        steps = f"The first {run.replay_steps:,} of about {run.replay_logged:,} steps"
    narrowed = "fewer prompts than in the log, so that groups of two fit"
    lines = [
        f"{steps}, {run.replay_rollouts:,} rollouts and a batch of "
        f"{_counted(run.replay_prompts or 0, 'prompt')} in each, "
        f"{narrowed if run.replay_narrowed else 'as in the log'}; "
        f"{_counted(run.replay_seeds or 0, 'seed')}."
    ]
    if (run.by_prompt["visits"] == 1).all():
        lines.append(f"{NO_HISTORY[0].upper()}{NO_HISTORY[1:]}.")
    return [*lines, COLUMNS, *LIMITS]


def replay_table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The policies and their figures, after a row of headings."""
    first = rows[0]["policy"]
    heads = ["informative", f"minus {first}'s", "signal", "in mixed groups", "modelled"]
    table = [["policy", *heads]]
    for at, row in enumerate(rows):
        less = _spanned(row, "informative_prompts_diff", "+") if at else ""
        shares = [percent(row[figure]) for figure in ("signal", "mixed_rollouts", "modelled")]
        table.append([row["policy"], _spanned(row, "informative_prompts"), less, *shares])
    return table


def domains_table(run: Report) -> list[list[str]]:
    """The figures of each domain, after a row of headings."""
    rows = [[shortened(name, 30), *map(_number, x.values())] for name, x in run.domains.items()]
    return [["domain", *next(iter(run.domains.values()))], *rows]


def _spanned(row: Mapping[str, Any], figure: str, sign: str = "-") -> str:
    """A share in per cent with its interval, if it has one."""
    low, high = row[f"{figure}_low"], row[f"{figure}_high"]
    known = low is not None and not math.isnan(low)  # for one seed there is none
    span = f" ({100 * low:{sign}.1f} to {100 * high:{sign}.1f})" if known else ""
    return f"{100 * row[figure]:{sign}.1f} %{span}"


def doubts_sentences(run: Report) -> list[str]:
    """The notes about ambiguous content of the log."""
    return [f"CAREFUL: {shortened(text, 300)}: {run.notes.get(text, 0):,}" for text in run.doubts]


def notes_sentences(run: Report) -> list[str]:
    """Omissions and assumptions of the reader, with their counts, without the doubts."""
    notes = {text: count for text, count in run.notes.items() if text not in run.doubts}
    lines = [f"{shortened(text, 200)}: {count:,}" for text, count in notes.items()]
    if run.unscored:
        lines.append(f"rollouts without a reward, left out: {run.unscored:,}")
    return lines or ["Nothing."]


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

    >>> import budgetalloc as ba
    >>> log = ba.testing.log_of(ba.testing.three_kinds(), steps=6)
    >>> print(as_text(ba.report.report(log, policies=())).splitlines()[0])
    Look at 66.7 % of the rollouts without a gradient.
    """
    run, width = report, max(width, 80)
    unicode = _shows_bars() if unicode is None else unicode

    def wrapped(*sentences: str) -> list[str]:
        """The sentences in lines, none of which begins with a per cent sign."""
        texts = [text.replace(" %", "\xa0%") for text in sentences]
        return [line.replace("\xa0", " ") for text in texts for line in textwrap.wrap(text, width)]

    name = f"{shortened(run.log, 200)} ({run.kind})"
    lines = wrapped(run.verdict, name, size_sentence(run), *doubts_sentences(run))
    lines += ["", *wrapped(headline(run), *cost_sentences(run))]
    lines += ["", "WHERE THE ROLLOUTS WENT", ""]
    room = max(width - 64, 10)
    for kind, part in run.kinds.items():
        bar = ("█" if unicode else "#") * max(round(part * room), 1)
        lines.append(f"  {LABELS[kind]:<10}{percent(part):>7}  {bar:<{room}}  {MEANING[kind]}")
    if course := _over_time(run, width, unicode):
        lines += ["", "OVER TIME (each line from its own lowest to its own highest)", "", *course]
        first, last = run.by_step.index[0], run.by_step.index[-1]
        explained = "Success: the mean. Surprise: the mean of |success - prediction|."
        lines += wrapped(f"Steps {first} to {last}. {explained}")
    if run.domains:
        lines += ["", "DOMAINS", "", *fitting(domains_table(run), width)]
    lines += ["", "PROMPTS", "", *wrapped(*prompts_sentences(run))]
    lines += ["", "  most wasted rollouts  of all  success  prompt"] if run.most_wasted else []
    for row in run.most_wasted[:5]:
        cells = f"  {row['wasted']:>20,}  {row['rollouts']:>6,}  {row['success']:>7.2f}  "
        lines.append(cells + named(row, max(width - len(cells), 20)))
    lines += ["", "WHAT COULD BE PREDICTED?", "", *wrapped(*forecast_sentences(run))]
    lines += ["", "WHAT OTHER POLICIES WOULD HAVE DRAWN (with as many rollouts per step)", ""]
    lines += [*fitting(replay_table(run.policies), width), ""] if run.policies else []
    lines += wrapped(*replay_sentences(run))
    lines += ["", "WHAT WAS LEFT OUT OR ASSUMED", "", *wrapped(*notes_sentences(run))]
    return "\n".join(lines)


def _shows_bars() -> bool:
    try:
        _BARS.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _over_time(run: Report, width: int, unicode: bool) -> list[str]:
    """A sparkline for each figure; none for a single run of steps."""
    time, lines = run.over_time(max(width - 44, 10)), []
    for name in (*run.kinds, "success", "surprise", *_PER_SUCCESS) if len(time) > 1 else ():
        values = [row[name] for row in time]
        known = [x for x in values if math.isfinite(x)]
        if name in _PER_SUCCESS and known:
            label, ends = name.split("_")[0], f"{min(known):,.0f} to {max(known):,.0f}"
            lines.append(f"  {label + ' a success':<17}{ends:>12}  {sparkline(values, unicode)}")
        elif known:
            ends = f"{percent(min(known)):>7} to {percent(max(known)):>7}"
            lines.append(f"  {LABELS.get(name, name):<10}{ends}  {sparkline(values, unicode)}")
    return lines


def fitting(table: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table, with as many columns as fit."""
    sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
    columns = [k for k in range(len(sizes)) if 2 + sum(sizes[: k + 1]) + 2 * k <= width]
    rows = [[f"{cells[k]:{'<' if k == 0 else '>'}{sizes[k]}}" for k in columns] for cells in table]
    return ["  " + "  ".join(cells).rstrip() for cells in rows]
