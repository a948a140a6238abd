"""The report as one HTML page without scripts or external resources, with dark mode, phone and print layouts."""

from collections.abc import Mapping, Sequence

import numpy as np

from budgetalloc.beliefs.group_kinds import FAILED, MIXED, PASSED, SINGLE, TIED
from budgetalloc.beliefs.ids import Id
from budgetalloc.report import findings, plots
from budgetalloc.report.findings import LABELS, MEANING, percent
from budgetalloc.report.forecast import share
from budgetalloc.report.markup import Markup, element, page, paragraphs, table
from budgetalloc.report.policy_replays import LIMITS, Replayed
from budgetalloc.report.summary import Report
from budgetalloc.report.waste import Waste

__all__ = ["as_html", "legend"]

_CARDS = {
    MIXED: "of rollouts in mixed groups",
    FAILED: "of rollouts in groups that all failed",
    PASSED: "of rollouts in groups that all passed",
    TIED: "of rollouts in groups of equal rewards",
    SINGLE: "single rollouts",
}
_POINTS = 60  # points of a plot over time
_OVER_STEPS = "training step"


def as_html(report: Report) -> str:
    """The report as one self-contained HTML page.

    All text of the log is escaped, and the page's content security policy forbids scripts and loading. The text of a
    prompt can therefore not be executed.
    """
    waste = report.waste
    if report.replayed is None:
        replay = [element("p", f"Not replayed: {report.why_not.rstrip('.')}.")]
    else:
        replay = _replay(report.replayed)
    notes = findings.notes_sentences(waste, report.notes, report.doubts)
    return page(
        f"budgetalloc report: {report.name}",
        element("h1", report.name),
        element("p", findings.headline(waste, report.missing), cls="first"),
        element("p", f"{findings.size_sentence(waste)} Read as {report.kind}.", cls="soft"),
        *paragraphs(findings.doubts_sentences(report.notes, report.doubts), cls="limits"),
        *paragraphs([findings.tokens_sentence(waste), findings.cost_sentence(waste), findings.singles_sentence(waste)]),
        _cards(waste),
        element("h2", "Where the rollouts went"),
        *_over_time(waste),
        element("h2", "Prompts"),
        *paragraphs(findings.prompts_sentences(waste)),
        _prompts(waste, report.texts),
        element("h2", "What could be predicted?"),
        *paragraphs(findings.forecast_sentences(waste)),
        *([_forecast(waste)] if waste.predictable else []),
        element("h2", "What other policies would have drawn"),
        *replay,
        element("h2", "What was left out or assumed"),
        element("ul", *(element("li", text) for text in notes)),
    )


def legend(keys: Mapping[str, str]) -> Markup:
    """The meaning of colours, by their names in the style sheet."""
    rows = [element("li", element("span", cls="key", style=f"--edge:var(--{key})"), text) for key, text in keys.items()]
    return element("ul", *rows, cls="legend")


def _cards(waste: Waste) -> Markup:
    shares = waste.shares()
    cards = [(percent(shares[kind]), _CARDS[kind], kind) for kind in waste.kinds]
    cards.append((f"{len(waste.never()):,}", "prompts never solved", "rule"))
    cards.append((f"{len(waste.always()):,}", "prompts always solved", "rule"))
    if waste.tokens and waste.wasted_tokens is not None:
        cards.append((percent(share(waste.wasted_tokens, waste.tokens)), "of tokens in wasted rollouts", "rule"))
    boxes = [
        element("div", element("b", number), text, cls="card", style=f"--edge:var(--{edge})")
        for number, text, edge in cards
    ]
    return element("div", *boxes, cls="cards")


def _plots(*parts: Markup) -> Markup:
    return element("div", *parts, cls="plots")


def _figure(title: str, picture: Markup, caption: str) -> Markup:
    return element("figure", element("h3", title), picture, element("figcaption", caption))


def _ticks(time: Sequence[dict[str, float]]) -> list[tuple[float, str]]:
    last, middle = len(time), len(time) // 2
    ticks = [(0.0, f"{time[0]['first']:,.0f}"), (last, f"{time[-1]['last']:,.0f}")]
    return ticks if last < 3 else [ticks[0], (middle + 0.5, f"{time[middle]['first']:,.0f}"), ticks[1]]


def _course(waste: Waste, name: str) -> Markup:
    time = waste.over_time(_POINTS)
    values = [row[name] for row in time]
    return plots.line(values, _ticks(time), f"Mean {name} over training steps", _OVER_STEPS, "course")


def _over_time(waste: Waste) -> list[Markup]:
    time = waste.over_time(_POINTS)
    layers = [(kind, [row[kind] for row in time]) for kind in waste.kinds]
    title = "Shares of rollouts by kind of group over training steps"
    kinds = plots.areas(layers, _ticks(time), title, _OVER_STEPS)
    return [
        legend({kind: f"{LABELS[kind]}: {MEANING[kind]}" for kind in waste.kinds}),
        _plots(
            _figure("Share of rollouts by kind of group", kinds, "From bottom to top in the order of the legend."),
            _figure("Mean success", _course(waste, "success"), "The mean over all rollouts of a step."),
        ),
    ]


def _prompts(waste: Waste, texts: Mapping[Id, str]) -> Markup:
    never, always = waste.never(), waste.always()
    rate_P = np.delete(waste.successes_P / waste.rollouts_P, np.concatenate([never, always]))
    counts = np.histogram(np.clip(rate_P, 0, 1), bins=10, range=(0, 1))[0].tolist()
    bars = [("all_fail", len(never), "never")]
    bars += [("mixed", count, "40-50" if k == 4 else "") for k, count in enumerate(counts)]
    bars.append(("all_pass", len(always), "always"))
    picture = plots.columns(bars, "Number of prompts by mean success", "mean success over the run, %")
    figure = _figure("Prompts", picture, "Prompts by their mean success over the whole run.")
    head, rows = ["prompt", "rollouts wasted", "of", "mean success"], []
    if waste.tokens is not None:
        head.append("tokens wasted")
    for row in findings.worst(waste, texts, 8):
        name = findings.named(row, 80 if row["text"] else 70)
        cells = [name, f"{row['wasted']:,}", f"{row['rollouts']:,}", f"{row['success']:.2f}"]
        rows.append(cells if waste.tokens is None else [*cells, f"{row['wasted_tokens']:,}"])
    if not rows:
        return _plots(figure)
    return _plots(figure, element("div", element("h3", "Most wasted rollouts"), table(head, rows), cls="beside"))


def _forecast(waste: Waste) -> Markup:
    points = [(row["predicted"], row["success"], row["rollouts"]) for row in waste.forecast.deciles()]
    calibration = plots.calibration(points, "Predicted against observed success", "predicted success")
    caption = "Rollouts in tenths of the prediction; a larger dot has more. Right predictions lie on the dashed line."
    surprise = "The mean of |success - prediction|: what is left to learn from."
    return _plots(
        _figure("Predicted and observed success", calibration, caption),
        _figure("Mean surprise", _course(waste, "surprise"), surprise),
    )


def _replay(replayed: Replayed) -> list[Markup]:
    figures = (
        ("mixed_rollouts", "Rollouts in mixed groups", "share of rollouts"),
        ("signal", "Signal: 4 times the variance of the prompts' success", "mean of 4 times the variance"),
    )
    pictures = []
    for figure, title, axis in figures:
        dots = [
            plots.Dot(row["policy"], row[figure], row[f"{figure}_low"], row[f"{figure}_high"])
            for row in replayed.rows
            if figure != "mixed_rollouts" or row["min_group"] > 1  # groups of one are never mixed
        ]
        if dots:
            picture = plots.dots(dots, f"{title}, by policy", axis)
            pictures.append(_figure(title, picture, "Lines are 95 % intervals over seeds, if wider than the dot."))
    head, *rows = findings.replay_table(replayed)
    limits = [element("h3", "What a replay can and cannot show"), *paragraphs(LIMITS)]
    return [
        _plots(*pictures),
        table(head, rows),
        *paragraphs(findings.replay_sentences(replayed)),
        element("div", *limits, cls="limits"),
    ]
