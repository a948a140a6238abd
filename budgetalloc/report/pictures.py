"""The pictures of a page, drawn by matplotlib and embedded as PNG."""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from budgetalloc.errors import imported

__all__ = ["COLORS", "areas", "calibration", "columns", "course", "curves", "dots"]

COLORS = {
    "mixed": "#0072b2",
    "all_fail": "#d55e00",
    "all_pass": "#009e73",
    "tied": "#cc79a7",
    "single": "#56b4e9",
}
"""Colours of Okabe and Ito, which colour-blind readers tell apart."""
_SIZE = (4.2, 2.5)  # inches; a phone shows about as many
_SHARES = (0, 0.25, 0.5, 0.75, 1)


def _embedded(draw: Callable[[Any], None], size: tuple[float, float] = _SIZE) -> str:
    """What `draw` draws on axes, as the address of an image."""
    figure = imported("matplotlib.figure", "A page of a report", "logs").Figure(
        figsize=size, layout="constrained"
    )
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    draw(axes)
    axes.xaxis.label.set_size(9)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=144)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _percent(axes: Any, which: str) -> None:
    setting = {
        f"{which}ticks": _SHARES,
        f"{which}ticklabels": [f"{100 * x:.0f} %" for x in _SHARES],
    }
    axes.set(**setting, **{f"{which}lim": (0, 1)})


def _steps(axes: Any, time: Sequence[Mapping[str, float]]) -> list[float]:
    """Sets the axis of training steps; returns the middle of each run of steps."""
    axes.set(
        xlabel="training step", xlim=(time[0]["first"], max(time[-1]["last"], time[0]["first"] + 1))
    )
    axes.locator_params(axis="x", nbins=5, integer=True)
    return [(row["first"] + row["last"]) / 2 for row in time]


def areas(time: Sequence[Mapping[str, float]], kinds: Sequence[str]) -> str:
    """The shares of the rollouts by kind of group over time, stacked from the bottom up."""

    def draw(axes: Any) -> None:
        _percent(axes, "y")
        middle = _steps(axes, time)
        ends = [time[0]["first"], *middle, max(time[-1]["last"], time[0]["first"] + 1)]
        layers = [[row[kind] for row in (time[0], *time, time[-1])] for kind in kinds]
        axes.stackplot(ends, layers, colors=[COLORS[kind] for kind in kinds])

    return _embedded(draw)


def course(time: Sequence[Mapping[str, float]], name: str) -> str:
    """A share over time, with gaps where it is not known."""

    def draw(axes: Any) -> None:
        _percent(axes, "y")
        axes.plot(
            _steps(axes, time),
            [row[name] for row in time],
            color=COLORS["mixed"],
            marker=".",
            markersize=3,
        )

    return _embedded(draw)


def calibration(tenths: Sequence[Mapping[str, float]]) -> str:
    """Predicted against observed success; a point's area is in proportion to its rollouts."""

    def draw(axes: Any) -> None:
        _percent(axes, "x")
        _percent(axes, "y")
        axes.plot([0, 1], [0, 1], color="0.5", linestyle="--")
        most = max((row["rollouts"] for row in tenths), default=1)
        sizes = [10 + 90 * row["rollouts"] / most for row in tenths]
        points = [row["predicted"] for row in tenths], [row["success"] for row in tenths]
        axes.scatter(*points, sizes, color=COLORS["mixed"], clip_on=False)
        axes.set_xlabel("predicted success")

    return _embedded(draw)


def columns(bars: Sequence[tuple[str, float, str]], label: str) -> str:
    """Upright bars: kind of group for the colour, height, and text under it."""

    def draw(axes: Any) -> None:
        axes.bar(
            range(len(bars)),
            [height for _, height, _ in bars],
            color=[COLORS[kind] for kind, _, _ in bars],
        )
        axes.set_xticks(range(len(bars)), [text for _, _, text in bars])
        axes.tick_params(axis="x", length=0)
        axes.locator_params(axis="y", nbins=4, integer=True)
        axes.set_xlabel(label)

    return _embedded(draw)


def dots(rows: Sequence[Mapping[str, Any]], figure: str, label: str) -> str:
    """A row for each policy: a share with its interval."""

    def draw(axes: Any) -> None:
        for at, row in enumerate(reversed(rows)):
            low, high = row[f"{figure}_low"], row[f"{figure}_high"]
            if not math.isnan(low):
                axes.plot([low, high], [at, at], color=COLORS["mixed"], linewidth=3)
            axes.plot(row[figure], at, "o", color=COLORS["mixed"])
            axes.annotate(
                f"  {100 * row[figure]:.1f} %",
                (max(row[figure], high), at),
                va="center",
                fontsize=8,
            )
        axes.set_yticks(range(len(rows)), [row["policy"] for row in reversed(rows)])
        axes.set(xlabel=label, ylim=(-0.6, len(rows) - 0.4))
        axes.margins(x=0.15)
        axes.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.0f} %")
        axes.locator_params(axis="x", nbins=5)

    return _embedded(draw, (_SIZE[0], 1.0 + 0.28 * len(rows)))


def curves(lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Curves of the reward over the rollouts, by kind of group for the colour."""

    def draw(axes: Any) -> None:
        for kind, points in lines.items():
            axes.plot(
                [at for at, _ in points], [y for _, y in points], color=COLORS[kind], marker="."
            )
        axes.set(xlabel="rollouts", xlim=(0, None))

    return _embedded(draw)
