"""What pages name can be reached and typed, and their tables are what the scripts of the benchmarks print."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import budgetalloc as ba
from budgetalloc.cli.parser import parser
from budgetalloc.methods.table import published

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


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ba.nothing


README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_pages_are_what_the_scripts_print():
    """README, docs/ and the evidence: all tables, and the sentences that count higher, lower and neither."""
    command, environment = [sys.executable, "benchmarks/learning/pages.py", "--check"], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, check=False)
    assert (done.returncode, done.stdout) == (0, ""), f"{done.stdout}{done.stderr}run benchmarks/learning/pages.py"


def test_what_the_readme_tells_to_type_exists():
    rules = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)\b", README)) <= set(rules)
    commands = next(x for x in parser()._actions if x.dest == "command").choices
    assert set(re.findall(r"`budgetalloc (\w+)", README)) <= set(commands)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "docs"}
    assert extras == set(re.findall(r"\[(\w+)\]['`]", README))
    assert f"one of {published()} in [METHODS.md]" in README


def test_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text()
    version, date = re.search(r"^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).groups()
    assert version == ba.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    assert f"\nversion: {version}\n" in citation
    assert f"\ndate-released: {date}\n" in citation
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    minors = [x.rpartition(" ")[2] for x in project["classifiers"] if re.search(r"Python :: 3\.\d", x)]
    assert project["requires-python"] == f">={minors[0]}"
    assert f"(Python {minors[0]} to {minors[-1]})" in README
    assert f"dist/budgetalloc-{version}-py3-none-any.whl" in (ROOT / "docs/start.md").read_text()
