"""The page of a report: self-contained and escaped, and opened in a real headless browser, narrow, dark and printed."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from matplotlib import image

from budgetalloc import Ledger
from budgetalloc.report import as_text, report
from budgetalloc.report.html import COLORS, areas, as_html

EVIL = [
    "<script>document.title='broken'</script>",
    "<img src='http://example.invalid/x.png' onerror=\"document.title='broken'\">",
    "</td></table><h2>Not a heading",
    "an entity &lt; & 'quotes'",
    "x" * 3000,
]
VOID = {"meta", "link", "img"}


def run(kind="usual"):
    """A run of 20 steps of 13 prompts, all wasted for certain, never, or now and then."""
    rng = np.random.default_rng(0)
    names = [*EVIL, *(f"prompt {k}" for k in range(8))]
    rate_P = np.array([0, 0, 0, 1, 0, *np.linspace(0, 1, 8)])
    n, steps = (1, 20) if kind == "alone" else (4, 1 if kind == "one step" else 20)
    size = steps * len(names) * n
    rewards_R = (rng.random(size) < np.tile(np.repeat(rate_P, n), steps)) * 1.0
    if kind == "graded":
        rewards_R *= 0.5
    ids_R, length = [name for name in names for _ in range(n)] * steps, -1 if kind == "graded" else 30
    step_R = np.repeat(np.arange(steps), len(names) * n)
    return Ledger.of_frame(pd.DataFrame({"step": step_R, "prompt": ids_R, "reward": rewards_R, "length": length}))


@pytest.fixture(scope="module")
def text():
    return as_html(report(run(), seeds=range(2), workers=1))


class Outline(HTMLParser):
    """Tags in order, and whether each is closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.balanced = [], [], True
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self.balanced &= bool(self.open) and self.open.pop() == tag


@pytest.mark.parametrize("kind", ["usual", "one step", "alone", "graded"])
def test_the_page_is_well_formed(kind):
    page = as_html(report(run(kind), policies=["uniform"], seeds=[0], workers=1))
    outline = Outline(page)
    assert outline.balanced
    assert not outline.open
    assert not re.search(r"\bnan\b", re.sub(r"<style>.*</style>|base64,[^\"]*", "", page, flags=re.DOTALL).lower())
    page.encode("utf-8")


def test_nothing_is_loaded_and_no_text_of_the_log_becomes_markup(text):
    tags = Outline(text).tags
    assert not {"script", "iframe", "object"} & {tag for tag, _ in tags}
    assert [tag for tag, _ in tags].count("h2") == 5
    loaded = [attrs.get(key) for _, attrs in tags for key in ("src", "href", "xlink:href", "srcset") if key in attrs]
    assert loaded[0] == "data:,"
    assert len(loaded) == 7
    assert all(address.startswith("data:image/png;base64,") for address in loaded[1:])
    assert not any(name.startswith("on") for _, attrs in tags for name in attrs)
    assert "url(" not in text
    assert "@import" not in text


def test_the_page_says_what_the_report_says(text):
    for said in ("gave no gradient", "What could be predicted?", "It cannot show what the language model", "thompson"):
        assert said in text
    assert "Not replayed: no policy was named." in as_html(report(run(), policies=()))


def test_areas_are_in_proportion_to_the_shares():
    time = [{"first": 0.0, "last": 9.0, "mixed": 0.75, "single": 0.25}]
    address = areas(time, ["mixed", "single"]).removeprefix("data:image/png;base64,")
    shown = (image.imread(io.BytesIO(base64.b64decode(address)))[:, :, :3] * 255).round().astype(int)

    def share(color):
        wanted = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
        return float((np.abs(shown - wanted).max(axis=2) < 12).mean())

    assert share(COLORS["mixed"]) == pytest.approx(3 * share(COLORS["single"]), rel=0.1)


def test_lone_surrogates_are_replaced():
    """JSON can hold one half of a surrogate pair, which UTF-8 cannot."""
    log = Ledger.of_frame(pd.DataFrame({"step": [0, 0], "prompt": ["\ud800 half"] * 2, "reward": [0, 0]}, dtype=object))
    summary = report(log, policies=())
    as_html(summary).encode("utf-8")
    as_text(summary, unicode=True).encode("utf-8")


# In a browser.


@pytest.fixture(scope="module")
def page(text, chromium, tmp_path_factory):
    """The report opened in a browser; `page.heard` is what it complained of or asked the network for."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(text, encoding="utf-8")
    page = chromium.new_page()
    page.set_default_timeout(180_000)
    page.heard = []
    page.on("console", lambda message: page.heard.append(message.text))
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    page.on("request", lambda request: page.heard.append(request.url))
    page.goto(file.as_uri())
    return page


def test_the_page_loads_without_messages_or_requests(page):
    asked = [said for said in page.heard if not said.startswith("data:")]
    assert len(asked) == 1
    assert asked[0].endswith("report.html")
    assert page.title().startswith("budgetalloc report")
    assert page.locator("h2").count() == 5


def test_the_prompts_are_shown_as_text(page):
    shown = page.locator("td.name").all_inner_texts()
    assert EVIL[0] in shown
    assert any(text.startswith("<img src=") for text in shown)
    assert page.locator("img").count() == 6  # those of the page: none of the log
    assert page.evaluate("[...document.images].every(x => x.complete && x.naturalWidth > 400)")


@pytest.mark.parametrize(("width", "columns"), [(320, 1), (390, 1), (1000, 2)])
def test_the_plots_fit_the_screen(page, width, columns):
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [box.bounding_box() for box in page.locator("img").all()]
    assert len(boxes) == 6
    for box in boxes:
        assert box["width"] > 0.4 * width / columns
        assert box["height"] > 60
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert (boxes[0]["y"] == boxes[1]["y"]) == (columns == 2)
