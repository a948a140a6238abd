"""What pages name can be reached and typed, and their tables are what the scripts of the benchmarks print."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import budgetalloc as ba
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
        if callable(owner) and not isinstance(owner, type):  # a method, whose module has the same name
            owner = sys.modules[owner.__module__]
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
        if name.startswith("axolotl.") and find_spec("axolotl") is None:
            continue  # `make trainers` runs axolotl with this name in its YAML
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


# The figures of README and docs/, which are those of the tables that the scripts write.


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


README, EVIDENCE, BENCHMARK = read("README.md"), read("docs/evidence.md"), read("benchmarks/learning/README.md")


def table(text, heading):
    """The cells of the first table after a heading, without its own heading."""
    lines = text[text.index(heading) :].splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("|"))
    end = next(at for at in range(first, len(lines) + 1) if at == len(lines) or not lines[at].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first + 2 : end]]


def columns(text, heading, *wanted):
    """The cells of these columns of the first table after a heading, a tuple a row."""
    lines = text[text.index(heading) :].splitlines()
    names = [cell.strip() for cell in next(line for line in lines if line.startswith("|")).strip("|").split("|")]
    return [tuple(row[names.index(name)] for name in wanted) for row in table(text, heading)]


@pytest.mark.slow
def test_the_pages_are_what_the_scripts_print():
    """The evidence and the benchmarks: all tables, and the sentences that count higher, lower and neither."""
    command, environment = [sys.executable, "benchmarks/learning/pages.py", "--check"], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, check=False)
    assert (done.returncode, done.stdout) == (0, ""), f"{done.stdout}{done.stderr}run benchmarks/learning/pages.py"


def fewer(share):
    """A share of the rollouts as the README says it.

    >>> fewer("0.70")
    30
    """
    return 100 - round(100 * float(share))


def section(heading):
    return EVIDENCE.partition(f"## {heading}")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("heading", "row"), [("Twelve mixes of tasks", "twelve mixes"), ("Three generations a step", "the same with")]
)
def test_the_first_rows_of_the_readme_are_counted_in_the_evidence(heading, row):
    text = section(heading)
    ((share, low, high),) = re.findall(r"final success\*\*: (\S+) \((\S+) to (\S+)\)", text)
    higher, lower = re.search(r"the run\*\*: higher on (\d+) .*?Lower on (\d+|none)", text).groups()
    said = next(line for line in README.splitlines() if line.startswith(f"| {row}")).lower()
    assert f"{fewer(share)} % fewer rollouts ({fewer(high)} to {fewer(low)} %)" in said
    assert re.search(rf"higher on {higher}, lower on {lower}\b", said)
    for page in (README, EVIDENCE, read("docs/index.md")):
        assert f"with {fewer(share)} % fewer" in " ".join(page.partition("\n## ")[0].split())


def test_the_rows_of_larger_models_are_those_of_the_evidence():
    scale = read("benchmarks/scale/README.md")
    shares = sorted(share.split()[0] for (share,) in columns(scale, "## One language", "share"))
    assert f"{fewer(shares[-1])} to {fewer(shares[0])} % fewer rollouts, no trend" in README
    assert f"after {shares[0]} to {shares[-1]} of uniform's rollouts" in section("Larger models")
    shares, falls = set(), set()
    for pool in ("prompts seen ten times", "prompts seen once"):
        found = dict(columns(EVIDENCE, "## Larger models", "", pool))
        share = found["rollouts to uniform's final success"]
        assert share.endswith("never)")  # not yet certain
        shares.add(fewer(share.split()[0]))
        falls.add(found["coverage at the end (pass@8)"].split()[0][1:])
    assert f"{min(shares)} to {max(shares)} % fewer rollouts, not yet certain" in README
    assert f"Coverage (pass@8) was lower by {min(falls)} to {max(falls)} |" in README


def test_figures_in_sentences_are_those_of_the_tables():
    """Those that `pages.py` does not write: after new runs they are read again."""
    gains = dict(columns(EVIDENCE, "## Twelve mixes", "mix", "difference (95 % interval)"))
    choose = " ".join(read("docs/choose.md").split())
    assert gains["hard_once"].replace("(", "(95 % interval ") in choose
    mean, coverage = re.search(r"mean \+(\S+) .*pass@64 \+(\S+) ", section("Three generations a step")).groups()
    assert f"the mean is {mean} higher, and pass@64 {coverage}" in choose
    rewards = dict(columns(BENCHMARK, "## Other rewards", "mix", "mean minus uniform's"))
    assert f"No difference was seen: {rewards.pop('scheduled')}" in section("Other questions")
    graded = sorted(cell.split()[0] for cell in rewards.values())
    assert f"Higher on 3 of 3, by {graded[0][1:]} to {graded[-1][1:]}" in section("Other questions")
    arms = dict(columns(read("benchmarks/peer/README.md"), "# Comparison", "arm", "end"))
    ends = [arms[name] for name in ("trl-cgrpo, grid to 8", "GRPO", "budgetalloc")]
    assert "Ends at {}, plain GRPO at {}, `sampled` at {}".format(*ends) in section("Other questions")


@pytest.mark.slow
def test_where_the_gain_comes_from_is_told_with_figures_that_a_script_prints():
    command = [sys.executable, "benchmarks/learning/with_features.py", "--parts"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    printed = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    parts = re.search(r"mean minus uniform's \|[ |]*\+(\S+) \| \+(\S+) \| \+(\S+)", printed).groups()
    told = re.findall(r"(0\.\d+)(?= with (?:the choice|the baseline|both))", " ".join(EVIDENCE.split()))
    assert told == list(parts)


def test_seconds_of_long_prompts_are_those_that_were_measured():
    lines = [line.split()[1:] for line in read("benchmarks/README.md").splitlines() if re.match(r"on +\d", line)]
    took = {(int(prompt), int(group)): float(ms) for prompt, answer, group, ms, *_ in lines if answer == "16"}
    long = re.search(r"768 tokens took (\d+) ms a rollout alone and (\d+) ms in groups of 8", README).groups()
    assert [float(ms) for ms in long] == [round(took[768, 1]), round(took[768, 8])]
    for prompt, *cells in table(EVIDENCE, "## Are fewer rollouts less time?"):
        assert cells == [f"{took[int(prompt.split()[0]), group]:.2f} ms" for group in (1, 8)]


def test_what_the_readme_tells_to_type_exists():
    rules = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)\b", README)) <= set(rules)
    assert README.index("make demo") < README.index("make test")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "docs"}
    assert extras == set(re.findall(r"\[(\w+)\]['`]", read("docs/start.md")))
    assert f"one of {published()} in [METHODS.md]" in README


def test_the_lines_that_attach_the_callback_are_python():
    code = README[README.index("    from budgetalloc.trl import") :].split("\n\n")[0]
    lines = [line.strip() for line in code.splitlines()]
    assert lines[-1] == "trainer.train()"
    compile("\n".join(lines), "README.md", "exec")


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
