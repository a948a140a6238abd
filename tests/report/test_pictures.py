"""Every picture of a page is an image that shows something, whatever the numbers."""

import base64
import io

import numpy as np
import pytest
from matplotlib import image

from budgetalloc.report import pictures

NAN = float("nan")
TIME = [
    {"first": 10.0 * k, "last": 10.0 * k + 9, "mixed": mixed, "single": 1 - mixed, "success": success}
    for k, (mixed, success) in enumerate([(0.5, 0.0), (0.25, NAN), (1.0, 1.0)])
]
ROW = {"policy": "reinforce_ada", "signal": 0.9, "signal_low": 0.8, "signal_high": 1.0}
DRAWN = {
    "areas": lambda: pictures.areas(TIME, ["mixed", "single"]),
    "areas of one step": lambda: pictures.areas([TIME[0] | {"last": 0.0}], ["mixed", "single"]),
    "course": lambda: pictures.course(TIME, "success"),
    "unknown course": lambda: pictures.course(TIME[1:2], "success"),
    "calibration": lambda: pictures.calibration([{"predicted": 0.05, "success": 0.1, "rollouts": 10}]),
    "columns": lambda: pictures.columns([("mixed", 3, "<b>"), ("single", 0, "")], "x"),
    "dots": lambda: pictures.dots([ROW, ROW | {"signal_low": NAN, "signal_high": NAN}], "signal", "x"),
    "curves": lambda: pictures.curves({"mixed": [(0.0, 0.25), (10.0, 0.75)], "all_fail": [(5.0, -1.0)]}),
}


def pixels(address):
    """The picture as red, green and blue from 0 to 255."""
    head, data = address.split(",")
    assert head == "data:image/png;base64"
    return (image.imread(io.BytesIO(base64.b64decode(data)))[:, :, :3] * 255).round().astype(int)


def share(shown, color):
    """The share of the pixels with a colour of `COLORS`."""
    wanted = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
    return float((np.abs(shown - wanted).max(axis=2) < 12).mean())


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_an_image_with_something_on_it(name):
    shown = pixels(DRAWN[name]())
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) > 5
    assert name == "unknown course" or share(shown, pictures.COLORS["mixed"]) > 0.00002


def test_areas_are_in_proportion_to_the_shares():
    shown = pixels(pictures.areas([TIME[0] | {"mixed": 0.75, "single": 0.25}], ["mixed", "single"]))
    mixed, single = (share(shown, pictures.COLORS[kind]) for kind in ("mixed", "single"))
    assert mixed == pytest.approx(3 * single, rel=0.1)
