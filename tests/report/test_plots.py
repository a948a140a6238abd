"""Plots are well-formed SVG that stays inside its box and shows its numbers."""

from xml.etree import ElementTree

import pytest

from budgetalloc.report import plots

NAN = float("nan")
TICKS = [(0.0, "0"), (3.0, "30")]
DRAWN = {
    "areas": plots.areas([("mixed", [0.5, 0.25, 1.0]), ("alone", [0.5, 0.75, 0.0])], TICKS, "t", "x"),
    "line": plots.line([0.0, NAN, 1.0], TICKS, "t", "x", "course"),
    "empty line": plots.line([NAN], [(0.5, "0")], "t", "x", "course"),
    "calibration": plots.calibration([(0.05, 0.1, 10), (0.95, 1.0, 1)], "t", "x"),
    "columns": plots.columns([("mixed", 3, "<b>"), ("alone", 0, "")], "a & b", "x"),
    "curves": plots.curves({"one": [(0.0, 0.25), (10.0, 0.75)], "other": [(5.0, -1.0)]}, "t", "x"),
    "a flat curve": plots.curves({"one": [(0.0, 0.5)]}, "t", "x"),
    "no columns": plots.columns([], "t", "x"),
    "dots": plots.dots(
        [plots.Dot("reinforce_ada", 1.0, 0.8, 1.2), plots.Dot("c", 0.35, 0.01, 0.6), plots.Dot("b", 0.0, NAN, NAN)],
        "t",
        "x",
    ),
    "no dots": plots.dots([plots.Dot("a", NAN, NAN, NAN)], "t", "x"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_is_well_formed_and_inside_its_box(name):
    root = ElementTree.fromstring(DRAWN[name])
    _, _, width, height = map(float, root.get("viewBox").split())
    for element in root.iter():
        for key in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.get(key, 0)) <= width, (key, element.attrib)
        for key in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.get(key, 0)) <= height, (key, element.attrib)
        for pair in element.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_layers_are_stacked_to_the_top():
    root = ElementTree.fromstring(DRAWN["areas"])
    lower, upper = (
        [tuple(map(float, pair.split(","))) for pair in layer.get("points").split()] for layer in root.iter("polygon")
    )
    ys = sorted({y for _, y in upper})
    assert ys[0] == 10  # the top of the box
    assert len(lower) == len(upper) == 10  # three middles and two ends, there and back
    assert set(lower[:5]) == set(upper[5:])


def test_a_line_has_gaps_where_nothing_is_known():
    root = ElementTree.fromstring(DRAWN["line"])
    assert len(list(root.iter("polyline"))) == 2
    assert not list(ElementTree.fromstring(DRAWN["empty line"]).iter("polyline"))


def test_bars_are_in_proportion():
    tall, flat = ElementTree.fromstring(DRAWN["columns"]).iter("rect")
    assert float(tall.get("height")) > 100
    assert float(flat.get("height")) == 0


def test_text_is_escaped():
    assert "<b>" not in DRAWN["columns"]
    assert 'aria-label="a &amp; b"' in DRAWN["columns"]
