"""The numbers of a report as sentences, shared by the terminal and the HTML page."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from budgetalloc.beliefs.group_kinds import FAILED, MIXED, PASSED, SINGLE, TIED
from budgetalloc.beliefs.ids import Id
from budgetalloc.report.forecast import BELIEF, NEAR, share
from budgetalloc.report.policy_replays import Replayed
from budgetalloc.report.waste import Waste

__all__ = [
    "LABELS",
    "MEANING",
    "NAMED",
    "PER_SUCCESS",
    "cost_sentence",
    "counted",
    "doubts_sentences",
    "forecast_sentences",
    "headline",
    "named",
    "notes_sentences",
    "percent",
    "prompts_sentences",
    "replay_sentences",
    "replay_table",
    "shortened",
    "singles_sentence",
    "size_sentence",
    "tokens_sentence",
    "worst",
]

LABELS = {MIXED: "mixed", FAILED: "all fail", PASSED: "all pass", TIED: "tied", SINGLE: "single"}
PER_SUCCESS = {"cost_per_success": "cost a success", "tokens_per_success": "tokens a success"}
"""Figures of what a success costs, the more telling one first, and their labels."""
NAMED = 20
"""The most prompts that a report names."""
MEANING = {
    MIXED: "unequal rewards: the group has a gradient",
    FAILED: "equal rewards, no rollout has success",
    PASSED: "equal rewards, every rollout has success",
    TIED: "equal rewards between the two",
    SINGLE: "the only rollout of its prompt in the step",
}


def percent(part: float) -> str:
    """A share in per cent; "-" if it is not defined.

    >>> percent(0.4897), percent(float("nan"))
    ('49.0 %', '-')
    """
    return "-" if math.isnan(part) else f"{100 * part:.1f} %"


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "step"), counted(2000, "step")
    ('1 step', '2,000 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_sentence(waste: Waste) -> str:
    """How large the log is."""
    steps = counted(len(waste.step_S), "step")
    if waste.trainer_steps < len(waste.step_S):
        steps = f"{counted(len(waste.step_S), 'decision')} in {counted(waste.trainer_steps, 'training step')}"
    return f"{waste.rollouts:,} rollouts in {waste.groups:,} groups: {len(waste.ids_P):,} prompts, {steps}."


def headline(waste: Waste, missing: tuple[int, int] = (0, 0)) -> str:
    """How many rollouts were wasted, and how many steps of the run the log lacks.

    Args:
        waste: The use of the rollouts in the log.
        missing: Steps that the log lacks, and steps of the run.
    """
    gone, steps = missing
    if gone:
        return f"{headline(waste)} The log has {steps - gone:,} of the run's {steps:,} steps: {gone:,} are missing."
    shares = waste.shares()
    groups = {
        FAILED: "that all failed",
        PASSED: "that all passed",
        TIED: "that had equal rewards in between",
    }
    parts = [
        f"{percent(shares[kind])} in groups {label}"
        for kind, label in groups.items()
        if shares[kind]
    ]
    if shares[SINGLE] == 1:
        return "Every rollout was a single rollout: there is no group whose rewards could be equal."
    if not parts:
        return "No group has equal rewards: no rollout was wasted under a group baseline."
    wasted = percent(share(waste.wasted, waste.rollouts))
    return f"{wasted} of the rollouts gave no gradient under a group baseline: {', '.join(parts)}."


def tokens_sentence(waste: Waste) -> str:
    """How many tokens wasted groups have, or that this is unknown."""
    if waste.tokens is None or waste.wasted_tokens is None:
        return "The log has no lengths, so the number of wasted tokens is unknown."
    known = (
        f"; the lengths of {percent(1 - waste.unmeasured / waste.rollouts)} are known"
        if waste.unmeasured
        else ""
    )
    part = percent(share(waste.wasted_tokens, waste.tokens))
    return f"Tokens in wasted groups: {waste.wasted_tokens:,} of {waste.tokens:,} ({part}{known})."


def cost_sentence(waste: Waste) -> str:
    """What a success cost over the run, in its first and in its last tenth; empty if that is
    unknown."""
    whole, time = waste.per_success(), waste.over_time(10)
    known = next((name for name in PER_SUCCESS if not math.isnan(whole[name])), None)
    if known is None:
        return ""
    what = (
        "Cost a success, in the unit of the run's cost="
        if known == "cost_per_success"
        else "Tokens a success"
    )
    ends = (
        ""
        if len(time) < 2
        else f", {_number(time[0][known])} at first and {_number(time[-1][known])} at the end"
    )
    return f"{what}: {_number(whole[known])} over the run{ends}."


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def singles_sentence(waste: Waste) -> str:
    """How single rollouts get their gradient; empty if there are none."""
    part = waste.shares()[SINGLE]
    if not part:
        return ""
    text = (
        f"{percent(part)} of the rollouts were single rollouts, the only one of their prompt in "
        "the step, as "
        "adaptive() requests. Their baseline is a prediction from earlier steps: the gradient is "
        "in the difference "
        "between success and prediction."
    )
    if waste.as_predicted and waste.predictable:
        near = percent(share(waste.as_predicted, waste.rollouts))
        text += f" In {near} of all rollouts it was at most {NEAR:g}, so their gradient is small."
    return text


def prompts_sentences(waste: Waste) -> list[str]:
    """How many prompts were never, sometimes and always solved, and their share of the rollouts."""
    lines = []
    never, always = waste.never(), waste.always()
    sometimes = np.setdiff1d(np.arange(len(waste.ids_P)), np.concatenate([never, always]))
    for label, at_P in (
        ("Never solved", never),
        ("Sometimes solved", sometimes),
        ("Always solved", always),
    ):
        part = share(len(at_P), len(waste.ids_P))
        took = share(waste.rollouts_P[at_P].sum(), waste.rollouts)
        each = f" (median {np.median(waste.rollouts_P[at_P]):.0f} each)" if len(at_P) else ""
        lines.append(
            f"{label}: {len(at_P):,} of {len(waste.ids_P):,} prompts ({percent(part)}), with "
            f"{percent(took)} of the "
            f"rollouts{each}."
        )
    return lines


def forecast_sentences(waste: Waste) -> list[str]:
    """How well the success of rollouts was predicted, and how much was not predicted."""
    forecast = waste.forecast
    if not waste.predictable:
        return ["No prompt came twice, and the log has no predictions: nothing could be predicted."]
    who = (
        "by the policy of the run"
        if 2 * forecast.logged >= forecast.rollouts
        else f"by the belief {BELIEF}"
    )
    if math.isnan(forecast.explained):
        return ["Every rollout had the same success, so there was nothing to predict."]
    lines = [
        f"Success of each rollout, as predicted {who} before its step. The prediction explained "
        f"{percent(forecast.explained)} of the variance of success (Brier score "
        f"{forecast.brier:.3f}; of the best "
        f"constant {forecast.constant:.3f}).",
        f"Mean surprise {forecast.surprise:.2f}: it is |success - prediction|, the size of the "
        "advantage under a "
        "baseline from earlier steps.",
    ]
    if forecast.explained < 0:
        lines.append("The prediction is worse than the constant.")
    if waste.graded:
        lines.append(
            "Success is graded. The report's own belief treats a success of 0.3 as 0.3 successes."
        )
    return lines


def replay_sentences(replayed: Replayed) -> list[str]:
    """What was replayed, and how to read the table."""
    steps = counted(replayed.steps, "step")
    if replayed.steps < replayed.logged:
        steps = f"The first {replayed.steps:,} of about {replayed.logged:,} steps"
    alike = (
        "fewer prompts than in the log, so that groups of two fit"
        if replayed.narrowed
        else "as in the log"
    )
    lines = [
        f"{steps}, {replayed.rollouts:,} rollouts and a batch of "
        f"{counted(replayed.prompts, 'prompt')} in each, "
        f"{alike}; {counted(replayed.seeds, 'seed')}."
    ]
    if names := ", ".join(row["policy"] for row in replayed.rows if row["min_group"] == 1):
        lines.append(
            f"{names} may request groups of one. These are never mixed, and their baseline comes "
            "from earlier steps. "
            "No share of mixed groups is given: compare by the signal."
        )
    lines.append(
        "Signal: the mean over the rollouts of 4 times the variance of their prompt's logged "
        "success, 4 p (1-p) for "
        "success of 0 and 1; 100 % if every prompt is solved half of the time. Modelled: the share "
        "of rollouts that a "
        "model answered, because the log had no more of the prompt. At least and at most: the "
        "share of rollouts in "
        "mixed groups for the least and the most favourable answers of the model. Intervals: 95 % "
        "over seeds; they say "
        "how much another draw from the same log would differ, not how much another training run "
        "would."
    )
    return lines


def replay_table(replayed: Replayed) -> list[list[str]]:
    """The policies and their figures, after a row of headings.

    A policy that may request groups of one has "-" for its mixed groups.
    """
    first = replayed.rows[0]
    table = [
        [
            "policy",
            "in mixed groups",
            f"more than {first['policy']}",
            "signal",
            "modelled",
            "at least",
            "at most",
        ]
    ]
    for row in replayed.rows:
        mixed = more = at_least = at_most = "-"
        if row["min_group"] > 1:
            mixed, at_least, at_most = (
                _spanned(row, "mixed_rollouts"),
                percent(row["at_least"]),
                percent(row["at_most"]),
            )
            if first["min_group"] > 1:
                more = "" if row is first else _spanned(row, "mixed_rollouts_diff", "+")
        table.append(
            [
                row["policy"],
                mixed,
                more,
                percent(row["signal"]),
                percent(row["modelled"]),
                at_least,
                at_most,
            ]
        )
    return table


def _spanned(row: Mapping[str, Any], figure: str, sign: str = "-") -> str:
    """A share in per cent with its interval, if it has one."""
    value, low, high = (100 * row[figure + end] for end in ("", "_low", "_high"))
    return f"{value:{sign}.1f} %" + (
        "" if math.isnan(low) else f" ({low:{sign}.1f} to {high:{sign}.1f})"
    )


def doubts_sentences(notes: Mapping[str, int], doubts: Sequence[str]) -> list[str]:
    """The notes about ambiguous content of the log."""
    return [f"CAREFUL: {shortened(text, 300)}: {notes.get(text, 0):,}" for text in doubts]


def notes_sentences(
    waste: Waste, notes: Mapping[str, int], doubts: Sequence[str] = ()
) -> list[str]:
    """Omissions and assumptions of the reader, with their counts, without `doubts`."""
    lines = [
        f"{shortened(text, 200)}: {count:,}" for text, count in notes.items() if text not in doubts
    ]
    if waste.unscored:
        lines.append(f"rollouts without a reward, left out: {waste.unscored:,}")
    if waste.broken and "broken row" not in notes:
        lines.append(f"broken lines: {waste.broken:,}")
    return lines or ["Nothing."]


def worst(waste: Waste, texts: Mapping[Id, str], most: int = 5) -> list[dict[str, Any]]:
    """The prompts with most wasted rollouts: `id`, `text`, `rollouts`, `wasted`, mean `success`,
    `wasted_tokens`."""
    order = np.argsort(-waste.wasted_P, kind="stable")[:most]
    return [
        {
            "id": waste.ids_P[at],
            "text": texts[waste.ids_P[at]][:200] if waste.ids_P[at] in texts else None,
            "rollouts": int(waste.rollouts_P[at]),
            "wasted": int(waste.wasted_P[at]),
            "success": float(waste.successes_P[at] / waste.rollouts_P[at]),
            "wasted_tokens": int(waste.wasted_tokens_P[at]) if waste.tokens is not None else None,
        }
        for at in order.tolist()
        if waste.wasted_P[at]
    ]


def named(row: Mapping[str, Any], width: int) -> str:
    """A prompt of `worst` by its id and, if it is known, the beginning of its text, in at most
    `width` characters.

    >>> named({"id": "4d4db5bbabf3998a", "text": "2 + 2 ="}, 40)
    '4d4db5bbabf3998a  2 + 2 ='
    """
    if not row["text"]:
        return shortened(row["id"], width)
    name = shortened(row["id"], 20)
    return f"{name}  {shortened(row['text'], min(width - len(name) - 2, 60))}"


def shortened(name: Id, width: int) -> str:
    """A text on one line of at most `width` characters, without control characters.

    >>> shortened("What is\\n2 + 2?", 10)
    'What is...'
    """
    text = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."
