"""Every name that the documents mention as `ba.x` or `budgetalloc.x` can be reached so after `import budgetalloc`."""

import importlib
import re
from pathlib import Path

import pytest

import budgetalloc as ba

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "METHODS.md", "CONTRIBUTING.md")]
PAGES += sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("integrations/**/*.md"), *ROOT.glob("benchmarks/**/*.md")])
NAME = re.compile(r"(?<![\w./+-])(?:ba|budgetalloc)((?:\.[A-Za-z_]\w*)+)")  # not settings of verl, "+budgetalloc."
FILES = ("md", "py", "png", "yaml", "npz", "jsonl")  # a file name such as budgetalloc.yaml is not a module


def mentioned(text: str) -> set[str]:
    """Dotted names below the package, without those that end like a file."""
    names = {match.group(1)[1:] for match in NAME.finditer(text)}
    return {name for name in names if name.rpartition(".")[2] not in FILES}


def resolved(name: str) -> object:
    """By attributes, as a user would write it; only modules inside `trl` and `verl` need an import of their own."""
    owner: object = ba
    for at, part in enumerate(parts := name.split(".")):
        if not hasattr(owner, part):
            importlib.import_module(".".join(["budgetalloc", *parts[: at + 1]]))
        owner = getattr(owner, part)
    return owner


def test_names_are_found_in_text():
    text = "`ba.report(x)`, budgetalloc.trl.Foo; not numba.jit, x/ba.y, budgetalloc.yaml, ba.1 or budgetalloc_state.npz"
    assert mentioned(text) == {"report", "trl.Foo"}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_on_a_page_can_be_reached(page):
    for name in sorted(mentioned(page.read_text(encoding="utf-8"))):
        if name.startswith("trl"):
            pytest.importorskip("trl")
        try:
            resolved(name)
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{page.name} mentions budgetalloc.{name}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ba._LATER))
def test_a_module_that_is_imported_late_is_an_attribute_and_listed(name):
    if ba._LATER[name].startswith("budgetalloc.trl"):
        pytest.importorskip("trl")
    assert getattr(ba, name) is importlib.import_module(ba._LATER[name])
    assert name in dir(ba)


def test_the_readme_s_names_of_modules_need_no_import_of_their_own():
    for name in ("report", "pacing", "testing", "tokens", "trees", "bandits", "policies", "downselect", "config"):
        assert getattr(ba, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ba.nothing
