"""The numbers of a report in sentences, which the terminal and the page share."""

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
    MIXED: "unequal rewards: the group has a gradient",
    FAILED: "every rollout has the lowest reward",
    PASSED: "every rollout has the highest reward",
    TIED: "equal rewards between lowest and highest",
    ALONE: "the only rollout of its prompt in a step",
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


def headline(waste: Waste) -> str:
    """How many rollouts were wasted, in one sentence."""
    shares = waste.shares()
    words = {FAILED: "all failed", PASSED: "all passed", TIED: "had equal rewards in between"}
    parts = [f"{percent(shares[kind])} in groups that {said}" for kind, said in words.items() if shares[kind]]
    wasted = share(waste.wasted, waste.rollouts)
    if not parts:
        return "No group has equal rewards: no rollout was wasted under a group baseline."
    return f"{percent(wasted)} of the rollouts gave no gradient under a group baseline: {', '.join(parts)}."


def tokens_sentence(waste: Waste) -> str:
    """How many tokens wasted groups have, or that this is unknown."""
    if waste.tokens is None or waste.wasted_tokens is None:
        return "The log has no lengths, so the number of wasted tokens is unknown."
    known = (
        "" if not waste.unmeasured else f"; the lengths of {percent(1 - waste.unmeasured / waste.rollouts)} are known"
    )
    part = percent(share(waste.wasted_tokens, waste.tokens))
    return f"Tokens in wasted groups: {waste.wasted_tokens:,} of {waste.tokens:,} ({part}{known})."


def alone_sentence(waste: Waste) -> str:
    """What is known of single rollouts; empty if there are none."""
    part = waste.shares()[ALONE]
    if not part:
        return ""
    return (
        f"{percent(part)} of the rollouts were the only one of their prompt in the step, as adaptive() asks for. Their "
        "baseline comes from earlier steps, so they are neither mixed nor wasted here."
    )


def prompts_sentences(waste: Waste) -> list[str]:
    """How many prompts were never and always solved, and their share of the rollouts."""
    lines = []
    for said, at_P in (("Never solved", waste.never()), ("Always solved", waste.always())):
        part = share(len(at_P), len(waste.ids_P))
        took = share(waste.rollouts_P[at_P].sum(), waste.rollouts)
        each = f" (median {np.median(waste.rollouts_P[at_P]):.0f} each)" if len(at_P) else ""
        lines.append(
            f"{said}: {len(at_P):,} of {len(waste.ids_P):,} prompts ({percent(part)}), with {percent(took)} of the "
            f"rollouts{each}."
        )
    return lines


def foresight_sentences(waste: Waste) -> list[str]:
    """How well the waste could be predicted one step ahead."""
    foresight = waste.foresight
    cold = percent(share(foresight.cold_wasted_rollouts, waste.wasted))
    if not foresight.groups:
        return ["No prompt came twice in groups of two or more, so its history could not predict anything."]
    called = foresight.called()
    caught = percent(share(called["wasted_rollouts"], waste.wasted))
    right = percent(share(called["wasted"], called["groups"]))
    lines = [
        f"{caught} of the wasted rollouts could be predicted from earlier steps with a probability of at least "
        f"{100 * SURE:.0f} %."
        if called["groups"]
        else f"No group was predicted to be wasted with a probability of at least {100 * SURE:.0f} %.",
    ]
    if called["groups"]:
        lines.append(f"Of the {called['groups']:,} groups predicted so, {right} were wasted.")
    lines.append(f"{cold} of the wasted rollouts were at the first visit of a prompt, before there was any history.")
    lines.append(
        f"Brier score of the prediction (mean squared error): {foresight.brier:.3f}; of the best constant: "
        f"{foresight.base * (1 - foresight.base):.3f}. Area under the ROC curve {foresight.auc:.2f}; log loss "
        f"{foresight.log_loss:.3f} nats a group. Belief: {BELIEF}."
    )
    if foresight.skill < 0:
        lines.append("That is worse than the constant: here a prompt's history says little about its next group.")
    if waste.graded:
        lines.append(
            "Rewards are graded. The belief treats a reward of 0.3 as 0.3 successes, so the prediction is rough."
        )
    return lines


def replay_sentences(replayed: Replayed) -> list[str]:
    """What was replayed, and how to read the table."""
    whole = replayed.steps >= replayed.logged
    part = (
        counted(replayed.steps, "step") if whole else f"The first {replayed.steps:,} of about {replayed.logged:,} steps"
    )
    alike = "fewer prompts than in the log, so that groups of two fit" if replayed.narrowed else "as in the log"
    lines = [
        f"{part}, {replayed.rollouts:,} rollouts and a batch of {counted(replayed.prompts, 'prompt')} in each, "
        f"{alike}; {counted(replayed.seeds, 'seed')}."
    ]
    if any(row["min_group"] == 1 for row in replayed.rows):
        names = ", ".join(row["policy"] for row in replayed.rows if row["min_group"] == 1)
        lines.append(
            f"{names} may ask for groups of one. These are never mixed; their baseline comes from earlier steps. "
            "Compare it by the signal."
        )
    lines.append(
        "Signal: the mean of 4 p (1-p) over the rollouts, where p is the logged success rate of the prompt; 100 % if "
        "every prompt is solved half of the time. Modelled: the share of rollouts that a model answered, because the "
        "log had no more of the prompt. At least and at most: the share of rollouts in mixed groups for the least and "
        "the most favourable answers of the model. Intervals: 95 % over seeds; they say how much another draw from the "
        "same log would differ, not how much another training run would."
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
    """A text on one line of at most `width` characters, without control characters.

    >>> shortened("What is\\n2 + 2?", 10)
    'What is...'
    """
    text = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."
