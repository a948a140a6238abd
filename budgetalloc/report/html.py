"""The report as one HTML page without scripts or external resources, with dark mode, phone and
print layouts. Pictures are drawn by matplotlib and embedded as PNG."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from budgetalloc.beliefs.rewards import FAILED, MIXED, PASSED, SINGLE, TIED
from budgetalloc.errors import import_optional
from budgetalloc.report import text
from budgetalloc.report.summary import Report

COLORS = {
    MIXED: "#0072b2",
    FAILED: "#d55e00",
    PASSED: "#009e73",
    TIED: "#cc79a7",
    SINGLE: "#56b4e9",
}
"""Colours of Okabe and Ito, which colour-blind readers tell apart."""
_POINTS = 60  # points of a picture over time
_SHARES = (0, 0.25, 0.5, 0.75, 1)
_Figures = Sequence[Mapping[str, Any]]


def as_html(report: Report) -> str:
    """The report as one self-contained HTML page.

    All text of the log is escaped, and the page's content security policy forbids scripts and
    loading. The text of a prompt can therefore not be executed.

    Raises:
        UnsupportedError: jinja2 or matplotlib is not installed.

    >>> import budgetalloc as ba
    >>> log = ba.testing.log_of(ba.testing.three_kinds(), steps=6)
    >>> page = as_html(ba.report.report(log, policies=()))
    >>> page.count("<h2"), page.count("<img")
    (5, 5)
    """
    time, rows = report.over_time(_POINTS), report.policies or []
    kinds = list(report.kinds)
    over_time = [
        ("Share of rollouts by kind of group", areas(time, kinds), "In the order of the legend."),
        ("Mean success", _course(time, "success"), "The mean over all rollouts of a step."),
    ]
    predicted = [
        (
            "Predicted and observed success",
            _calibration(report.success_deciles),
            "Rollouts in tenths of the prediction; a larger dot has more. Right predictions lie on "
            "the dashed line.",
        ),
        ("Mean surprise", _course(time, "surprise"), "What is left to learn from."),
    ]
    lines = "Lines are 95 % intervals over seeds, if wider than the dot."
    return page(
        "report.html",
        title=f"budgetalloc report: {report.log}",
        report=report,
        text=text,
        kinds={kind: f"{text.LABELS[kind]}: {text.MEANING[kind]}" for kind in kinds},
        over_time=over_time,
        solved=("Prompts", _solved(report), "Prompts by their mean success over the whole run."),
        predicted=predicted if report.predictable else [],
        replays=[("Prompts with a gradient, as a share of the rollouts", _dots(rows), lines)]
        if rows
        else [],
    )


def page(template: str, **values: Any) -> str:
    """A page from one of the templates next to this file, with every value escaped."""
    jinja2 = import_optional("jinja2", "A page of a report", "logs")
    markup = import_optional("markupsafe", "A page of a report", "logs").Markup

    def written(value: Any) -> Any:
        """Lone surrogates, which UTF-8 does not have, are replaced; "%" stays on the number's
        line."""
        if isinstance(value, markup):
            return value
        return str(value).encode(errors="replace").decode().replace(" %", "\xa0%")

    loader = jinja2.PackageLoader("budgetalloc.report", "")
    environment = jinja2.Environment(loader=loader, autoescape=True, finalize=written)
    return str(environment.get_template(template).render(**values))


def _axes(height: float = 2.5) -> Any:
    figures = import_optional("matplotlib.figure", "A page of a report", "logs")
    axes = figures.Figure(figsize=(4.2, height), layout="constrained").subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return axes


def _embedded(axes: Any) -> str:
    """What was drawn on axes, as the address of an image."""
    axes.xaxis.label.set_size(9)
    file = io.BytesIO()
    axes.figure.savefig(file, format="png", dpi=144)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _percent(axes: Any, which: str) -> None:
    labels = [f"{100 * x:.0f} %" for x in _SHARES]
    axes.set(**{f"{which}ticks": _SHARES, f"{which}ticklabels": labels, f"{which}lim": (0, 1)})


def _steps(axes: Any, time: _Figures) -> list[float]:
    """Sets the axis of training steps; returns the middle of each run of steps."""
    last = max(time[-1]["last"], time[0]["first"] + 1)
    axes.set(xlabel="training step", xlim=(time[0]["first"], last))
    axes.locator_params(axis="x", nbins=5, integer=True)
    return [(row["first"] + row["last"]) / 2 for row in time]


def areas(time: _Figures, kinds: Sequence[str]) -> str:
    """The shares of the rollouts by kind of group over time, stacked from the bottom up."""
    axes = _axes()
    _percent(axes, "y")
    middle = _steps(axes, time)
    ends = [time[0]["first"], *middle, max(time[-1]["last"], time[0]["first"] + 1)]
    layers = [[row[kind] for row in (time[0], *time, time[-1])] for kind in kinds]
    axes.stackplot(ends, layers, colors=[COLORS[kind] for kind in kinds])
    return _embedded(axes)


def _course(time: _Figures, name: str) -> str:
    """A share over time, with gaps where it is not known."""
    axes = _axes()
    _percent(axes, "y")
    values = [row[name] for row in time]
    axes.plot(_steps(axes, time), values, color=COLORS[MIXED], marker=".", markersize=3)
    return _embedded(axes)


def _calibration(tenths: _Figures) -> str:
    """Predicted against observed success; a point's area is in proportion to its rollouts."""
    axes = _axes()
    _percent(axes, "x")
    _percent(axes, "y")
    axes.plot([0, 1], [0, 1], color="0.5", linestyle="--")
    most = max((row["rollouts"] for row in tenths), default=1)
    sizes = [10 + 90 * row["rollouts"] / most for row in tenths]
    points = [row["predicted"] for row in tenths], [row["success"] for row in tenths]
    axes.scatter(*points, sizes, color=COLORS[MIXED], clip_on=False)
    axes.set_xlabel("predicted success")
    return _embedded(axes)


def _solved(report: Report) -> str:
    """How many prompts were never and always solved, and in tenths of the mean success between."""
    rate_P = np.sort(report.by_prompt["success"] / report.by_prompt["rollouts"])
    between = rate_P[report.never_solved : len(rate_P) - report.always_solved]
    counts = np.histogram(np.clip(between, 0, 1), bins=10, range=(0, 1))[0].tolist()
    heights = [report.never_solved, *counts, report.always_solved]
    axes = _axes()
    axes.bar(range(12), heights, color=[COLORS[x] for x in (FAILED, *[MIXED] * 10, PASSED)])
    axes.set_xticks([0, 5, 11], ["never", "40-50", "always"])
    axes.tick_params(axis="x", length=0)
    axes.locator_params(axis="y", nbins=4, integer=True)
    axes.set_xlabel("mean success over the run, %")
    return _embedded(axes)


def _dots(rows: _Figures) -> str:
    """A row for each policy: its informative prompts, with their interval."""
    axes = _axes(1.0 + 0.28 * len(rows))
    for at, row in enumerate(reversed(rows)):
        share, low, high = (row[f"informative_prompts{end}"] for end in ("", "_low", "_high"))
        if not math.isnan(low):
            axes.plot([low, high], [at, at], color=COLORS[MIXED], linewidth=3)
        axes.plot(share, at, "o", color=COLORS[MIXED])
        place = (max(share, high), at)
        axes.annotate(f"  {100 * share:.1f} %", place, va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [row["policy"] for row in reversed(rows)])
    axes.set(xlabel="informative prompts, as a share of the rollouts", ylim=(-0.6, len(rows) - 0.4))
    axes.margins(x=0.15)
    axes.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.0f} %")
    axes.locator_params(axis="x", nbins=5)
    return _embedded(axes)


def curves(lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Curves of the reward over the rollouts, by kind of group for the colour."""
    axes = _axes()
    for kind, points in lines.items():
        axes.plot(*zip(*points, strict=True), color=COLORS[kind], marker=".")
    axes.set(xlabel="rollouts", xlim=(0, None))
    return _embedded(axes)
