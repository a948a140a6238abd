"""Small plots as inline SVG. The page's style sheet colours them, so they follow a dark mode and print well.

Sizes are in units of the drawing, which is 420 wide: on a phone a unit is nearly a pixel.
"""

import html
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 420, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 10, 38


class Dot(NamedTuple):
    """A value with its interval (NaN: none) in a row of `dots`."""

    label: str
    value: float
    low: float
    high: float


def areas(layers: Sequence[tuple[str, Sequence[float]]], ticks: Sequence[tuple[float, str]], title: str, x: str) -> str:
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
        there = [f"{_x(at, count):.1f},{_y(y):.1f}" for at, y in _steps(above)]
        back = [f"{_x(at, count):.1f},{_y(y):.1f}" for at, y in reversed(_steps(below))]
        parts.append(f'<polygon class="{name}" points="{" ".join([*there, *back])}"/>')
        below = above
    return _svg([*parts, *_grid(), *_across(ticks, count, x)], title)


def line(values: Sequence[float], ticks: Sequence[tuple[float, str]], title: str, x: str, name: str) -> str:
    """One share over time, with gaps where it is NaN."""
    count = len(values)
    parts, run = [], ""
    for at, y in _steps(values):
        if math.isnan(y):
            run = ""
            continue
        point = f"{_x(at, count):.1f},{_y(y):.1f}"
        if not run:
            parts.append("")
        run = f"{run} {point}" if run else point
        parts[-1] = f'<polyline class="line {name}" points="{run}"/>'
    return _svg([*_grid(), *parts, *_across(ticks, count, x)], title)


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], title: str, x: str) -> str:
    """Several curves of any values over any x from 0, by class of the style sheet; the axis begins at the lowest."""
    points = [point for line in lines.values() for point in line]
    low, high = min(y for _, y in points), max(y for _, y in points)
    width, size = max(at for at, _ in points) or 1.0, (high - low) or 1.0
    parts = []
    for k in range(5):
        y = _y(k / 4)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{low + size * k / 4:.3g}", "end"))
    for name, line in lines.items():
        places = " ".join(f"{_x(at / width, 1):.1f},{_y((y - low) / size):.1f}" for at, y in line)
        parts.append(f'<polyline class="line {name}" points="{places}"/>')
    ticks = [(k / 2, f"{width * k / 2:,.0f}") for k in range(3)]
    return _svg([*parts, *_across(ticks, 1, x)], title)


def calibration(points: Sequence[tuple[float, float, float]], title: str, x: str) -> str:
    """Predicted against observed shares beside the diagonal; a point's area is in proportion to its weight."""
    inside = WIDTH - _LEFT - _RIGHT
    most = max((weight for _, _, weight in points), default=1.0)
    parts = [f'<line class="diagonal" x1="{_LEFT}" y1="{_y(0)}" x2="{_LEFT + inside}" y2="{_y(1)}"/>']
    for predicted, observed, weight in points:
        radius = 3 + 7 * math.sqrt(weight / most)
        parts.append(
            f'<circle class="point" cx="{_LEFT + predicted * inside:.1f}" cy="{_y(observed):.1f}" r="{radius:.1f}"/>'
        )
    ticks = [(k / 4, f"{25 * k} %") for k in range(5)]
    return _svg([*_grid(), *parts, *_across(ticks, 1, x)], title)


def columns(bars: Sequence[tuple[str, float, str]], title: str, x: str) -> str:
    """Upright bars from 0: class of the style sheet, height, and text under it, which may be empty."""
    inside = WIDTH - _LEFT - _RIGHT
    most = max((height for _, height, _ in bars), default=0.0) or 1.0
    each = inside / max(len(bars), 1)
    marks = (0, 1) if most < 10 else (0, 0.5, 1)
    parts = [_text(_LEFT - 6, _y(share) + 4, f"{most * share:,.0f}", "end") for share in marks]
    parts.append(f'<line class="axis" x1="{_LEFT}" y1="{_y(0)}" x2="{_LEFT + inside}" y2="{_y(0)}"/>')
    for at, (name, height, label) in enumerate(bars):
        left, top = _LEFT + at * each, _y(height / most)
        box = f'x="{left + 1.5:.1f}" y="{top:.1f}" width="{each - 3:.1f}" height="{_y(0) - top:.1f}"'
        parts.append(f'<rect class="{name}" {box}/>')
        if label:
            parts.append(_text(left + each / 2, HEIGHT - _BOTTOM + 15, label, "middle"))
    return _svg([*parts, _under(x)], title)


def dots(rows: Sequence[Dot], title: str, x: str) -> str:
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
        parts.append(f'<line class="grid" x1="{place(at):.1f}" y1="{_TOP}" x2="{place(at):.1f}" y2="{bottom}"/>')
        parts.append(_text(place(at), bottom + 15, f"{100 * at:.0f} %", "middle"))
    for k, row in enumerate(rows):
        y = _TOP + 26 * k + 13
        parts.append(_text(left - 8, y + 4, row.label, "end"))
        if not math.isnan(row.low):
            parts.append(f'<line class="span" x1="{place(row.low):.1f}" y1="{y}" x2="{place(row.high):.1f}" y2="{y}"/>')
        if not math.isnan(row.value):
            parts.append(f'<circle class="point" cx="{place(row.value):.1f}" cy="{y}" r="5"/>')
            end_of = row.value if math.isnan(row.high) else max(row.value, row.high)
            parts.append(_text(place(end_of) + 10, y + 4, f"{100 * row.value:.1f} %", "start"))
    return _svg([*parts, _under(x, height)], title, height)


def _steps(values: Sequence[float]) -> list[tuple[float, float]]:
    """Corners of a curve through the middles of the runs, flat at both ends; x counts runs."""
    middles = [(at + 0.5, y) for at, y in enumerate(values)]
    return [(0.0, values[0]), *middles, (float(len(values)), values[-1])]


def _x(at: float, count: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * at / count


def _y(share: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - share)


def _grid() -> list[str]:
    """Lines and labels for 0 to 100 %."""
    parts = []
    for k in range(5):
        y = _y(k / 4)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{25 * k} %", "end"))
    return parts


def _across(ticks: Sequence[tuple[float, str]], count: int, x: str) -> list[str]:
    y = HEIGHT - _BOTTOM + 15
    anchors = ["start", *["middle"] * (len(ticks) - 2), "end"] if len(ticks) > 1 else ["middle"]
    labels = [_text(_x(at, count), y, text, anchor) for (at, text), anchor in zip(ticks, anchors, strict=True)]
    return [*labels, _under(x)]


def _under(text: str, height: int = HEIGHT) -> str:
    return _text((WIDTH + _LEFT - _RIGHT) / 2, height - 5, text, "middle")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _svg(parts: Sequence[str], title: str, height: int = HEIGHT) -> str:
    name = html.escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">{"".join(parts)}</svg>'
