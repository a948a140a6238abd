"""The site as `make docs` builds it: no broken link, and opened in a headless browser, on a phone and on a screen.

Without the environment of `make docs`, or without a browser, these tests are skipped.
"""

import subprocess
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import budgetalloc as ba

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / ".venv-docs/bin/mkdocs"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MKDOCS.exists(), reason="no environment for the docs: `make docs` makes it"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [MKDOCS, "build", "--strict", "--site-dir", folder], cwd=ROOT, capture_output=True, text=True
    )
    assert build.returncode == 0, build.stdout + build.stderr
    return folder


class Links(HTMLParser):
    """The ids of a page, and what it links to or loads."""

    def __init__(self, file):
        super().__init__()
        self.ids, self.links = set(), set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[key] for key in ("id", "name") if attrs.get(key)}
        self.links |= {attrs[key] for key in ("href", "src") if attrs.get(key)}


def test_every_link_leads_somewhere(site):
    """Also those of included pages, of the reference and of the table of contents, and those with an anchor."""
    pages = {file: Links(file) for file in site.rglob("*.html") if file.name != "404.html"}
    assert len(pages) > 30
    broken = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in pages[target].ids):
                broken.append((file.relative_to(site).as_posix(), link))
    assert not broken


def test_nothing_is_loaded_from_another_host(site):
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        for tag in ('<script src="http', '<link rel="stylesheet" href="http', '<img src="http'):
            assert tag not in text, file


def test_entries_of_the_reference_are_what_they_are_called(site):
    """A function with the name of its module would be shown as that module."""
    for file in (site / "api").glob("*.html"):
        assert "doc-module-name" not in file.read_text(encoding="utf-8"), file


def test_doctests_of_the_reference_are_shown_as_code(site):
    page = (site / "api/parts.html").read_text(encoding="utf-8")
    assert "&gt;&gt;&gt; " in page
    assert "<blockquote>" not in page


# In a browser.


@pytest.fixture(scope="module")
def address(site):
    """The site behind a server, which the search needs."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def page(chromium):
    """An empty tab; `page.heard` is what pages complained of or asked other hosts for."""
    page = chromium.new_page()
    page.set_default_timeout(180_000)
    page.heard = []
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    page.on("console", lambda message: page.heard.append(message.text) if message.type == "error" else None)
    page.on("request", lambda asked: None if "127.0.0.1" in asked.url else page.heard.append(asked.url))
    return page


LOOK = """width => ({
    width: document.documentElement.scrollWidth,
    letters: parseFloat(getComputedStyle(document.querySelector('.md-content .md-typeset')).fontSize),
    titles: document.querySelectorAll('h1').length,
    missing: [...document.images].filter(x => !x.naturalWidth).map(x => x.src),
    over: [...document.querySelectorAll('.md-content :is(p, li, h1, h2, h3, img, pre), .cards td')]
        .filter(x => x.closest('.cards') || !x.closest('.md-typeset__scrollwrap'))
        .filter(x => x.tagName !== 'IMG' || getComputedStyle(x.parentElement).overflowX !== 'auto')  // it scrolls
        .filter(x => x.getBoundingClientRect().right > width + 1)
        .map(x => x.textContent.slice(0, 60) || x.src),
})"""
OTHERS = ["METHODS.html", "CONTRIBUTING.html", "benchmarks/learning/index.html", "integrations/trl/index.html"]
OTHERS += ["notebooks/03_values_and_solvers.html", "api/policies.html"]


@pytest.mark.parametrize("name", [*(f"{path.stem}.html" for path in sorted((ROOT / "docs").glob("*.md"))), *OTHERS])
def test_a_page_is_readable_on_a_phone_and_on_a_screen(address, page, name):
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{address}/{name}", wait_until="load")
    page.add_style_tag(content="* { transition: none !important }")  # the search moves when the window is resized
    for width in (400, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        seen = page.evaluate(LOOK, width)
        assert seen.pop("width") <= width
        assert seen.pop("letters") >= 14
        assert seen == {"titles": 1, "missing": [], "over": []}
    assert not page.heard


@pytest.mark.parametrize(
    ("words", "where"),
    [("posterior baseline", "how.html"), ("rewards_clipped", "metrics.html"), ("pilot_commit", "METHODS.html")],
)
def test_the_search_finds_it(address, page, words, where):
    page.set_viewport_size({"width": 1400, "height": 800})
    page.goto(f"{address}/index.html")
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").press_sequentially(words)  # the search looks at keys
    page.locator("a.md-search-result__link").first.wait_for()
    links = page.locator("a.md-search-result__link").evaluate_all("all => all.map(x => x.href)")
    assert any(where in link for link in links), links
    assert not page.heard


def test_the_search_works_in_pages_that_are_opened_as_files(site, chromium):
    page = chromium.new_page(viewport={"width": 1400, "height": 800})
    page.set_default_timeout(180_000)
    page.goto((site / "api/parts.html").as_uri())
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").press_sequentially("posterior baseline")
    page.locator("a.md-search-result__link").first.wait_for()
    links = page.locator("a.md-search-result__link").evaluate_all("all => all.map(x => x.href)")
    assert any(link.startswith((site / "how.html").as_uri()) for link in links), links


def test_the_first_screen_says_what_it_is_how_to_install_it_and_which_version(address, page):
    page.set_viewport_size({"width": 1400, "height": 800})
    page.goto(f"{address}/index.html")
    text = page.locator(".hero").inner_text()
    assert page.locator(".hero").bounding_box()["height"] < 700
    for part in ("pip install", "AdaptiveGRPOCallback(trainer)", "trainer.train()", f"Version {ba.__version__}"):
        assert part in text
    assert page.get_by_role("heading", name="When not to use it").count() == 1


def test_a_wide_table_on_a_phone_scrolls_beside_its_first_column(address, page):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{address}/evidence.html")
    seen = page.evaluate("""() => {
        const tables = [...document.querySelectorAll('.md-typeset__scrollwrap')]
        const wide = tables.find(x => x.scrollWidth > x.clientWidth + 100)
        const left = at => wide.querySelectorAll('tr:nth-child(2) td')[at].getBoundingClientRect().left
        const before = [left(0), left(2)]
        wide.scrollLeft = 90
        return [left(0) - before[0], left(2) - before[1]]
    }""")
    assert seen[0] > -20
    assert seen[1] == -90


@pytest.mark.parametrize("width", [390, 820, 1400])
@pytest.mark.parametrize("name", ["start.html", "choose.html"])
def test_the_copy_button_hides_no_code_and_code_breaks_in_no_word(address, page, name, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{address}/{name}")
    page.locator(".md-code__nav").first.wait_for()
    seen = page.evaluate("""() => ({
        hidden: [...document.querySelectorAll('.md-code__nav')].filter(x => x.getBoundingClientRect().left
            < x.parentElement.querySelector('code').getBoundingClientRect().right).length,
        broken: [...document.querySelectorAll('td code')].filter(x => !/\\s/.test(x.textContent.trim())
            && x.getClientRects().length > 1).map(x => x.textContent),
    })""")
    assert seen == {"hidden": 0, "broken": []}
