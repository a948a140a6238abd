"""Small plots as inline SVG. The page's style sheet colours them, so they follow a dark mode and print well.

Sizes are in units of the drawing, which is 420 wide: on a phone a unit is nearly a pixel.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from budgetalloc.report.markup import Markup, element

__all__ = ["HEIGHT", "WIDTH", "Dot", "areas", "calibration", "columns", "curves", "dots", "line"]

WIDTH, HEIGHT = 420, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 10, 38
_INSIDE = WIDTH - _LEFT - _RIGHT
_PERCENT = ["0 %", "25 %", "50 %", "75 %", "100 %"]


class Dot(NamedTuple):
    """A value with its interval (NaN: none) in a row of `dots`."""

    label: str
    value: float
    low: float
    high: float


def areas(
    layers: Sequence[tuple[str, Sequence[float]]], ticks: Sequence[tuple[float, str]], title: str, x: str
) -> Markup:
    """Shares stacked to 1 over time, from the bottom up.

    Args:
        layers: Class of the style sheet, and one share for each run of steps, shape (T,).
        ticks: Place between 0 and T - 1, and text.
        title: Title for screen readers.
        x: Label of the axis.
    """
    count = len(layers[0][1])
    below = [0.0] * count
    parts = []
    for name, shares in layers:
        above = [b + s for b, s in zip(below, shares, strict=True)]
        corners = [*_corners(above), *reversed(_corners(below))]
        parts.append(element("polygon", cls=name, points=" ".join(_place(at / count, y) for at, y in corners)))
        below = above
    return _svg([*parts, *_grid(_PERCENT), *_ticks(ticks, count), _label(x)], title)


def line(values: Sequence[float], ticks: Sequence[tuple[float, str]], title: str, x: str, name: str) -> Markup:
    """One share over time, with gaps where it is NaN."""
    count = len(values)
    runs: list[list[str]] = [[]]
    for at, y in _corners(values):
        if math.isnan(y):
            runs.append([])
        else:
            runs[-1].append(_place(at / count, y))
    parts = [element("polyline", cls=f"line {name}", points=" ".join(run)) for run in runs if run]
    return _svg([*_grid(_PERCENT), *parts, *_ticks(ticks, count), _label(x)], title)


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], title: str, x: str) -> Markup:
    """Several curves of any values over any x from 0, by class of the style sheet; the axis begins at the lowest."""
    points = [point for line in lines.values() for point in line]
    low, high = min(y for _, y in points), max(y for _, y in points)
    width, size = max(at for at, _ in points) or 1.0, (high - low) or 1.0
    parts = _grid([f"{low + size * k / 4:.3g}" for k in range(5)])
    for name, line in lines.items():
        places = " ".join(_place(at / width, (y - low) / size) for at, y in line)
        parts.append(element("polyline", cls=f"line {name}", points=places))
    ticks = [(k / 2, f"{width * k / 2:,.0f}") for k in range(3)]
    return _svg([*parts, *_ticks(ticks, 1), _label(x)], title)


def calibration(points: Sequence[tuple[float, float, float]], title: str, x: str) -> Markup:
    """Predicted against observed shares, with the diagonal; a point's area is in proportion to its weight."""
    most = max((weight for _, _, weight in points), default=1.0)
    parts = [element("line", cls="diagonal", x1=_LEFT, y1=_y(0), x2=_LEFT + _INSIDE, y2=_y(1))]
    for predicted, observed, weight in points:
        radius = 3 + 7 * math.sqrt(weight / most)
        parts.append(element("circle", cls="point", cx=_x(predicted), cy=_y(observed), r=radius))
    ticks = [(k / 4, text) for k, text in enumerate(_PERCENT)]
    return _svg([*_grid(_PERCENT), *parts, *_ticks(ticks, 1), _label(x)], title)


def columns(bars: Sequence[tuple[str, float, str]], title: str, x: str) -> Markup:
    """Upright bars from 0: class of the style sheet, height, and text under it, which may be empty."""
    most = max((height for _, height, _ in bars), default=0.0) or 1.0
    each = _INSIDE / max(len(bars), 1)
    marks = (0, 1) if most < 10 else (0, 0.5, 1)
    parts = [_text(_LEFT - 6, _y(share) + 4, f"{most * share:,.0f}", "end") for share in marks]
    parts.append(element("line", cls="axis", x1=_LEFT, y1=_y(0), x2=_LEFT + _INSIDE, y2=_y(0)))
    for at, (name, height, label) in enumerate(bars):
        left, top = _LEFT + at * each, _y(height / most)
        parts.append(element("rect", cls=name, x=left + 1.5, y=top, width=each - 3, height=_y(0) - top))
        if label:
            parts.append(_text(left + each / 2, HEIGHT - _BOTTOM + 15, label, "middle"))
    return _svg([*parts, _label(x)], title)


def dots(rows: Sequence[Dot], title: str, x: str) -> Markup:
    """A row for each value between 0 and 1, with its interval."""
    height = 26 * len(rows) + _TOP + _BOTTOM
    left, end = 16 + 7.2 * max((len(row.label) for row in rows), default=0), WIDTH - 56
    known = [min(max(x, 0.0), 1.0) for row in rows for x in row[1:] if not math.isnan(x)]
    low, high = math.floor(10 * min(known, default=0.0)), math.ceil(10 * max(known, default=1.0))  # tenths
    high = max(high, low + 1)

    def place(share: float) -> float:
        return left + (end - left) * (10 * min(max(share, 0.0), 1.0) - low) / (high - low)

    bottom = height - _BOTTOM
    parts = []
    for at in (k / 10 for k in range(low, high + 1, 1 if high - low < 6 else 2)):
        parts.append(element("line", cls="grid", x1=place(at), y1=_TOP, x2=place(at), y2=bottom))
        parts.append(_text(place(at), bottom + 15, f"{100 * at:.0f} %", "middle"))
    for k, row in enumerate(rows):
        y = _TOP + 26 * k + 13
        parts.append(_text(left - 8, y + 4, row.label, "end"))
        if not math.isnan(row.low):
            parts.append(element("line", cls="span", x1=place(row.low), y1=y, x2=place(row.high), y2=y))
        if not math.isnan(row.value):
            parts.append(element("circle", cls="point", cx=place(row.value), cy=y, r=5))
            right = row.value if math.isnan(row.high) else max(row.value, row.high)
            parts.append(_text(place(right) + 10, y + 4, f"{100 * row.value:.1f} %", "start"))
    return _svg([*parts, _label(x, height)], title, height)


def _corners(values: Sequence[float]) -> list[tuple[float, float]]:
    """Corners of a curve through the middles of the runs, flat at both ends; x counts runs."""
    middles = [(at + 0.5, y) for at, y in enumerate(values)]
    return [(0.0, values[0]), *middles, (float(len(values)), values[-1])]


def _x(share: float) -> float:
    return _LEFT + _INSIDE * share


def _y(share: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - share)


def _place(x: float, y: float) -> str:
    return f"{_x(x):.1f},{_y(y):.1f}"


def _grid(labels: Sequence[str]) -> list[Markup]:
    """Lines and labels for 0, 1/4, 1/2, 3/4 and 1."""
    parts = []
    for k, label in enumerate(labels):
        y = _y(k / 4)
        parts.append(element("line", cls="grid", x1=_LEFT, y1=y, x2=WIDTH - _RIGHT, y2=y))
        parts.append(_text(_LEFT - 6, y + 4, label, "end"))
    return parts


def _ticks(ticks: Sequence[tuple[float, str]], count: int) -> list[Markup]:
    """Texts under the axis, at places from 0 to `count`."""
    y = HEIGHT - _BOTTOM + 15
    anchors = ["start", *["middle"] * (len(ticks) - 2), "end"] if len(ticks) > 1 else ["middle"]
    return [_text(_x(at / count), y, text, anchor) for (at, text), anchor in zip(ticks, anchors, strict=True)]


def _label(text: str, height: int = HEIGHT) -> Markup:
    """The name of the axis, at the lower edge."""
    return _text((WIDTH + _LEFT - _RIGHT) / 2, height - 5, text, "middle")


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return element("text", text, x=float(x), y=float(y), text_anchor=anchor)


def _svg(parts: Sequence[Markup], title: str, height: int = HEIGHT) -> Markup:
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=title)
