"""The README is short and says what is measured; every name that a document mentions as `ba.x` can be reached."""

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
from budgetalloc.policies.methods import published

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


# The README itself.

README = (ROOT / "README.md").read_text(encoding="utf-8")
EVIDENCE = (ROOT / "benchmarks/learning/README.md").read_text(encoding="utf-8")


def table(text, heading):
    """The cells of the first table after a heading, without its own heading."""
    lines = text[text.index(heading) :].splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("|"))
    end = next(at for at in range(first, len(lines) + 1) if at == len(lines) or not lines[at].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first + 2 : end]]


def evidence():
    """The first table of the evidence: the heading of each column, and the rows."""
    lines = EVIDENCE[EVIDENCE.index("## Can the default hurt me") :].splitlines()
    names = next(line for line in lines if line.startswith("| mix |")).strip("|").split("|")
    return [name.strip() for name in names], table(EVIDENCE, "## Can the default hurt me")


def measured():
    """The rows that the README must have: those of the evidence, without rates, group sizes and intervals."""
    wanted = ("mix", "start", "mean", "pass@64", "mean", "pass@64")
    names, rows = evidence()
    mix, start, mean, pass64, mean_adaptive, pass64_adaptive = (at for at, name in enumerate(names) if name in wanted)
    assert [names[at] for at in (mix, start, mean, pass64, mean_adaptive, pass64_adaptive)] == list(wanted)
    return [[row[at] for at in (mix, start, mean, mean_adaptive, pass64, pass64_adaptive)] for row in rows]


def verdict(*options, script="verdict.py"):
    command, environment = [sys.executable, f"benchmarks/learning/{script}"], os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *options], capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    ).stdout


def test_the_evidence_is_what_the_verdict_prints():
    lines = [line for line in verdict().splitlines() if line]
    assert "\n".join(line for line in lines if line.startswith("|")) in EVIDENCE
    mean = next(line for line in lines if line.startswith("Geometric mean"))
    assert mean.removesuffix(".").removeprefix("Geometric mean of the shares: ") in " ".join(EVIDENCE.split())


def test_the_evidence_about_rivals_is_what_the_verdict_prints():
    told = verdict("--rivals")
    assert told.strip() in EVIDENCE
    assert {"ar3po", "ebpo", "spo", "v05"} <= {line.split(" | ")[0].strip("| ") for line in told.splitlines()}


def test_the_evidence_about_the_other_methods_is_what_the_verdict_prints():
    told = verdict("--rivals", "--mix", "u_shape", "--mix", "hard_once")
    assert told.strip() in EVIDENCE
    asked = set(re.findall(r"\w+", "spo_offline spo_pp reinforce_pp pac bots prime_pools adarft sgpo a_star_po aero"))
    assert asked <= {line.split(" | ")[0].strip("| ") for line in told.splitlines()}


def test_the_evidence_about_twice_the_rate_is_what_the_script_prints():
    assert verdict(script="twice.py").strip() in EVIDENCE


def test_the_readme_is_about_90_lines():
    assert 70 <= len(README.splitlines()) <= 95


def test_the_readme_s_table_is_that_of_the_evidence():
    rows = measured()
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    assert table(README, "## Does it help?") == rows, f"the table of the README should be:\n{text}"


def test_the_readme_says_the_size_of_the_models_in_the_sentence_with_the_gain():
    section = " ".join(README[README.index("## Does it help?") :].split("|")[0].split())
    (sentence,) = [x for x in re.split(r"(?<=\.)\s", section) if " above that of uniform " in x]
    assert "340 k parameters" in sentence
    assert "340 k parameters" in EVIDENCE
    names, rows = evidence()
    gains = [float(row[names.index("mean less uniform's")].split()[0]) for row in rows]
    said = re.search(r"is (0\.\d\d) to (0\.\d\d) above .* equal on one, and (0\.\d{3}) below on one", sentence).groups()
    least, equal, *above = gains  # the rows rise
    assert abs(equal) < 0.005
    assert re.search(r"\(-.* to 0\.", rows[1][names.index("mean less uniform's")])  # the interval includes 0
    assert (round(min(above), 2), round(max(above), 2), -least) == tuple(map(float, said))
    numbers = {"ten": 10, "eleven": 11, "twelve": 12}
    assert numbers[re.search(r"On (\w+) mixes", sentence)[1]] == len(gains)
    assert numbers[re.search(r"on (\w+) mixes, equal", sentence)[1]] == len(above)
    (seeds,) = {row[names.index("seeds")] for row in rows}
    assert numbers[re.search(r"and (\w+) seeds each", sentence)[1]] == int(seeds)
    lower = sum(float(row[5]) < float(row[4]) for row in measured() if row[4] != "not recorded")
    assert f"On {('no', 'one', 'two', 'three', 'four', 'five')[lower]} mixes coverage is lower" in README


def test_the_readme_s_links_lead_to_files():
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)
    assert len(targets) > 12
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_what_the_readme_tells_to_type_exists():
    rules = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)\b", README)) <= set(rules)
    assert README.index("make demo") < README.index("make test") < README.index("## Install")
    commands = next(x for x in parser()._actions if x.dest == "command").choices
    assert set(re.findall(r"`budgetalloc (\w+)", README)) <= set(commands)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "docs"}
    assert extras == set(re.findall(r"\[(\w+)\]['`]", README))
    assert f"one of {published()} in [METHODS.md]" in README


def test_four_lines_attach_the_callback():
    code = README[README.index("    from budgetalloc.trl import") :].split("\n\nverl takes")[0]
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    assert len(lines) == 4
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
