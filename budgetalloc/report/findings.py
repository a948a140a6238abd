"""What the numbers of a report say, in plain sentences that the terminal and the page share."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.report.foresight import BELIEF, SURE, share
from budgetalloc.report.rivals import Replayed
from budgetalloc.report.waste import ALONE, FAILED, MIXED, PASSED, TIED, Waste

LABELS = {MIXED: "mixed", FAILED: "all fail", PASSED: "all pass", TIED: "all equal", ALONE: "alone"}
MEANING = {
    MIXED: "rewards differ: the group teaches",
    FAILED: "every rollout has the lowest reward",
    PASSED: "every rollout has the highest reward",
    TIED: "equal rewards between lowest and highest",
    ALONE: "one rollout of its prompt, no group",
}


def percent(part: float) -> str:
    """A share in per cent, "-" for one that is not defined.

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


def headline(waste: Waste) -> str:
    """How much was wasted, in one sentence."""
    shares = waste.shares()
    words = {FAILED: "all failed", PASSED: "all passed", TIED: "had equal rewards in between"}
    parts = [f"{percent(shares[kind])} in groups that {said}" for kind, said in words.items() if shares[kind]]
    wasted = share(waste.wasted, waste.rollouts)
    if not parts:
        return "No rollout lies in a group of equal rewards: none was wasted for a group baseline."
    return f"{percent(wasted)} of the rollouts taught nothing under a group baseline: {', '.join(parts)}."


def tokens_sentence(waste: Waste) -> str:
    """The tokens of wasted groups, or that they are unknown."""
    if waste.tokens is None or waste.wasted_tokens is None:
        return "The log has no lengths, so the tokens wasted are unknown."
    known = "" if not waste.unmeasured else f", lengths of {percent(1 - waste.unmeasured / waste.rollouts)} known"
    part = percent(share(waste.wasted_tokens, waste.tokens))
    return f"Tokens in wasted groups: {waste.wasted_tokens:,} of {waste.tokens:,} ({part}{known})."


def alone_sentence(waste: Waste) -> str:
    """What a log of groups of one can say; empty where there are none."""
    part = waste.shares()[ALONE]
    if not part:
        return ""
    return (
        f"{percent(part)} of the rollouts had no other of their prompt in the step, as adaptive() asks for. They learn "
        "through a baseline from earlier steps, so that mixed groups do not describe them: they count as neither."
    )


def prompts_sentences(waste: Waste) -> list[str]:
    """Prompts never and always solved, and what they took."""
    found = []
    for said, at_P in (("Never solved", waste.never()), ("Always solved", waste.always())):
        part = share(len(at_P), len(waste.ids_P))
        took = share(waste.rollouts_P[at_P].sum(), waste.rollouts)
        each = f", {np.median(waste.rollouts_P[at_P]):.0f} each in the median" if len(at_P) else ""
        found.append(
            f"{said}: {len(at_P):,} of {len(waste.ids_P):,} prompts ({percent(part)}), with {percent(took)} of the "
            f"rollouts{each}."
        )
    return found


def foresight_sentences(waste: Waste) -> list[str]:
    """How predictable the waste was one step ahead."""
    seen = waste.foresight
    cold = percent(share(seen.cold_wasted_rollouts, waste.wasted))
    if not seen.groups:
        return ["No prompt came twice in groups of two or more: from its own history, nothing could be foreseen."]
    called = seen.called()
    caught = percent(share(called["wasted_rollouts"], waste.wasted))
    right = percent(share(called["wasted"], called["groups"]))
    lines = [
        f"{caught} of the wasted rollouts could be foreseen with {100 * SURE:.0f} % certainty from earlier steps."
        if called["groups"]
        else f"No group was foreseen as wasted with {100 * SURE:.0f} % certainty.",
    ]
    if called["groups"]:
        lines.append(f"Of the {called['groups']:,} groups so called, {right} were wasted.")
    lines.append(f"{cold} of the waste fell on the first visit of a prompt, where there is no history.")
    lines.append(
        f"Brier score {seen.brier:.3f} against {seen.base * (1 - seen.base):.3f} of the best constant forecast; "
        f"area under the curve {seen.auc:.2f}; {seen.log_loss:.3f} nats a group. Belief: {BELIEF}."
    )
    if seen.skill < 0:
        lines.append("That is worse than the constant: in this log a prompt's past says little about its next group.")
    if waste.graded:
        lines.append("Rewards are graded; the belief takes them for shares of a success, so its forecasts are rough.")
    return lines


def replay_sentences(replayed: Replayed) -> list[str]:
    """What was replayed, and how to read it."""
    whole = replayed.steps >= replayed.logged
    part = (
        counted(replayed.steps, "step") if whole else f"The first {replayed.steps:,} of about {replayed.logged:,} steps"
    )
    alike = "fewer prompts than the log, for groups of two" if replayed.narrowed else "as in the log"
    lines = [
        f"{part}, {replayed.rollouts:,} rollouts and a batch of {counted(replayed.prompts, 'prompt')} in each, "
        f"{alike}; {counted(replayed.seeds, 'seed')}."
    ]
    if any(row["min_group"] == 1 for row in replayed.rows):
        names = ", ".join(row["policy"] for row in replayed.rows if row["min_group"] == 1)
        lines.append(
            f"{names} may ask for groups of one, which are never mixed and learn through a baseline from earlier "
            "steps: mixed groups do not describe it, the signal does."
        )
    lines.append(
        "Signal: how undecided the prompts were, the mean of 4 p (1-p) over the rollouts with p the logged rate of the "
        "prompt; 100 % where each passes half of the time. Modelled: the part of the rollouts that a model answered, "
        "not the log. Sure and at best: the part in mixed groups with the least and the most favourable model. "
        "Intervals: 95 % over seeds; they say what another draw of the same log would give, not another run."
    )
    return lines


def notes_sentences(waste: Waste, notes: Mapping[str, int]) -> list[str]:
    """What the reader left out or assumed, and how often."""
    lines = [f"{shortened(text, 200)}: {count:,}" for text, count in notes.items()]
    if waste.unscored:
        lines.append(f"rollouts without a reward, left out: {waste.unscored:,}")
    if waste.broken and "broken row" not in notes:
        lines.append(f"broken lines: {waste.broken:,}")
    return lines or ["Nothing."]


def worst(waste: Waste, most: int = 5) -> list[dict[str, Any]]:
    """The prompts with most rollouts in wasted groups: `id`, `rollouts`, `wasted`, mean `reward`, `tokens` wasted."""
    order = np.argsort(-waste.wasted_P, kind="stable")[:most]
    return [
        {
            "id": waste.ids_P[at],
            "rollouts": int(waste.rollouts_P[at]),
            "wasted": int(waste.wasted_P[at]),
            "reward": float(waste.successes_P[at] / waste.rollouts_P[at]),
            "wasted_tokens": int(waste.wasted_tokens_P[at]) if waste.tokens is not None else None,
        }
        for at in order.tolist()
        if waste.wasted_P[at]
    ]


def shortened(name: Id, width: int) -> str:
    """An id on one line of at most so many characters; control characters are left out.

    >>> shortened("What is\\n2 + 2?", 10)
    'What is...'
    """
    text = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."
