"""The report as one HTML page without scripts or external resources, with dark mode, phone and
print layouts."""

from typing import Any

import numpy as np

from budgetalloc.beliefs.group_kinds import FAILED, MIXED, PASSED, SINGLE, TIED
from budgetalloc.errors import imported
from budgetalloc.report import findings, pictures
from budgetalloc.report.findings import LABELS, MEANING, percent
from budgetalloc.report.forecast import share
from budgetalloc.report.policy_replays import LIMITS
from budgetalloc.report.summary import Report
from budgetalloc.report.verdict import verdict
from budgetalloc.report.waste import Waste

__all__ = ["as_html", "page"]

_CARDS = {
    MIXED: "of rollouts in mixed groups",
    FAILED: "of rollouts in groups that all failed",
    PASSED: "of rollouts in groups that all passed",
    TIED: "of rollouts in groups of equal rewards",
    SINGLE: "single rollouts",
}
_POINTS = 60  # points of a picture over time
_INTERVALS = "Lines are 95 % intervals over seeds, if wider than the dot."
_TENTHS = "Rollouts in tenths of the prediction; a larger dot has more. Right predictions lie on the dashed line."


def as_html(report: Report) -> str:
    """The report as one self-contained HTML page.

    All text of the log is escaped, and the page's content security policy forbids scripts and
    loading. The text of a prompt can therefore not be executed.

    Raises:
        UnsupportedError: jinja2 or matplotlib is not installed.
    """
    waste, replayed = report.waste, report.replayed
    time = waste.over_time(_POINTS)
    over_time = [
        _picture(
            "Share of rollouts by kind of group",
            pictures.areas(time, waste.kinds),
            "In the order of the legend.",
        ),
        _picture(
            "Mean success",
            pictures.course(time, "success"),
            "The mean over all rollouts of a step.",
        ),
    ]
    surprise = "The mean of |success - prediction|: what is left to learn from."
    return page(
        "report.html",
        title=f"budgetalloc report: {report.name}",
        report=report,
        verdict=verdict(report),
        headline=findings.headline(waste, report.missing),
        size=findings.size_sentence(waste),
        doubts=findings.doubts_sentences(report.notes, report.doubts),
        about=[
            findings.tokens_sentence(waste),
            findings.cost_sentence(waste),
            findings.singles_sentence(waste),
        ],
        cards=_cards(waste),
        kinds={kind: f"{LABELS[kind]}: {MEANING[kind]}" for kind in waste.kinds},
        over_time=over_time,
        prompts=findings.prompts_sentences(waste),
        solved=_solved(waste),
        worst_head=[
            "prompt",
            "rollouts wasted",
            "of",
            "mean success",
            *(["tokens wasted"] if waste.tokens else []),
        ],
        worst=_worst(report),
        forecast=findings.forecast_sentences(waste),
        predicted=[
            _picture(
                "Predicted and observed success",
                pictures.calibration(waste.forecast.deciles()),
                _TENTHS,
            ),
            _picture("Mean surprise", pictures.course(time, "surprise"), surprise),
        ]
        if waste.predictable
        else [],
        replays=[] if replayed is None else _replays(replayed.rows),
        replay_table=None if replayed is None else findings.replay_table(replayed),
        replay=[] if replayed is None else findings.replay_sentences(replayed),
        limits=LIMITS,
        why_not=report.why_not.rstrip("."),
        notes=findings.notes_sentences(waste, report.notes, report.doubts),
    )


def page(template: str, **values: Any) -> str:
    """A page from one of the templates next to this file, with every value escaped."""
    jinja2 = imported("jinja2", "A page of a report", "logs")
    markup = imported("markupsafe", "A page of a report", "logs").Markup

    def written(value: Any) -> Any:
        """Lone surrogates, which UTF-8 does not have, are replaced; "%" stays on the number's
        line."""
        if isinstance(value, markup):
            return value
        return str(value).encode(errors="replace").decode().replace(" %", "\xa0%")

    loader = jinja2.PackageLoader("budgetalloc.report", "")
    environment = jinja2.Environment(loader=loader, autoescape=True, finalize=written)
    return str(environment.get_template(template).render(**values))


def _picture(title: str, image: str, caption: str = "") -> dict[str, str]:
    return {"title": title, "image": image, "caption": caption}


def _cards(waste: Waste) -> list[tuple[str, str, str]]:
    """Numbers, what they are, and their colours."""
    shares = waste.shares()
    cards = [(percent(shares[kind]), _CARDS[kind], kind) for kind in waste.kinds]
    cards.append((f"{len(waste.never()):,}", "prompts never solved", "rule"))
    cards.append((f"{len(waste.always()):,}", "prompts always solved", "rule"))
    if waste.tokens and waste.wasted_tokens is not None:
        cards.append(
            (
                percent(share(waste.wasted_tokens, waste.tokens)),
                "of tokens in wasted rollouts",
                "rule",
            )
        )
    return cards


def _solved(waste: Waste) -> dict[str, str]:
    never, always = waste.never(), waste.always()
    rate_P = np.delete(waste.successes_P / waste.rollouts_P, np.concatenate([never, always]))
    counts = np.histogram(np.clip(rate_P, 0, 1), bins=10, range=(0, 1))[0].tolist()
    bars = [("all_fail", len(never), "never")]
    bars += [("mixed", count, "40-50" if k == 4 else "") for k, count in enumerate(counts)]
    bars.append(("all_pass", len(always), "always"))
    image = pictures.columns(bars, "mean success over the run, %")
    return _picture("Prompts", image, "Prompts by their mean success over the whole run.")


def _worst(report: Report) -> list[list[str]]:
    rows = []
    for row in findings.worst(report.waste, report.texts, 8):
        name = findings.named(row, 80 if row["text"] else 70)
        cells = [name, f"{row['wasted']:,}", f"{row['rollouts']:,}", f"{row['success']:.2f}"]
        rows.append([*cells, f"{row['wasted_tokens']:,}"] if report.waste.tokens else cells)
    return rows


def _replays(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    several = [row for row in rows if row["min_group"] > 1]  # groups of one are never mixed
    signal = pictures.dots(rows, "signal", "mean of 4 times the variance")
    found = [_picture("Signal: 4 times the variance of the prompts' success", signal, _INTERVALS)]
    if several:
        mixed = pictures.dots(several, "mixed_rollouts", "share of rollouts")
        found.insert(0, _picture("Rollouts in mixed groups", mixed, _INTERVALS))
    return found
