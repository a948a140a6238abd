"""The pages as they are read in a clone or on a code host: links lead to files and headings, and nothing is left raw.

`test_site.py` checks the same links on the built site.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("docs", "integrations", "benchmarks", "notebooks")
PAGES = sorted([*ROOT.glob("*.md"), *(page for room in ROOMS for page in (ROOT / room).rglob("*.md"))])
LINK = re.compile(r"\]\(([^)\s#:]*)(?:#([^)\s]*))?\)")  # relative: no scheme
FENCED = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def anchors(text):
    """The anchors of the headings of a Markdown file, as code hosts make them."""
    names, seen = set(), {}
    for heading in re.findall(r"^#+ +(.*?) *#*$", FENCED.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain).lower().replace(" ", "-")
        seen[name] = seen.get(name, -1) + 1
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
    return names


def broken(page, root=ROOT):
    """The links of a page that lead to no file of the repository, or to no heading of it."""
    found = []
    for target, anchor in LINK.findall(CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))):
        path = (page.parent / target).resolve() if target else page
        if not path.is_relative_to(root) or not path.exists():
            found.append(target)
        elif anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
            found.append(f"{target}#{anchor}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/b.md").write_text("# B\n## Two runs: `report A B`\n## B\n```\n# no heading\n```\n")
    page = tmp_path / "docs/a.md"
    page.write_text(
        "[1](b.md) [2](b.md#b-1) [3](b.md#two-runs-report-a-b) [4](#own) [5](https://a.b/c#d) [6](../docs/b.md)\n"
        "# Own\n`[7](code.md)`\n```\n[8](code.md)\n```\n"
        "[a](c.md) [b](b.md#no-heading) [c](#other) [d](../../b.md)\n"
    )
    assert broken(page, tmp_path) == ["c.md", "b.md#no-heading", "#other", "../../b.md"]
