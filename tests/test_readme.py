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
    for name in ("report", "testing", "policies", "offline", "cli"):
        assert getattr(ba, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ba.nothing


# The README itself.

README = (ROOT / "README.md").read_text(encoding="utf-8")
EVIDENCE = (ROOT / "benchmarks/learning/README.md").read_text(encoding="utf-8")
HELPS = (ROOT / "docs/helps.md").read_text(encoding="utf-8")


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
    """README, docs/ and the evidence: all tables, and the sentences that count higher, lower and neither."""
    command, environment = [sys.executable, "benchmarks/learning/pages.py", "--check"], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, check=False)
    assert (done.returncode, done.stdout) == (0, ""), f"{done.stdout}{done.stderr}run benchmarks/learning/pages.py"


def test_the_pages_count_mixes_in_the_same_sentences():
    sentences = re.findall(r"^- \*\*.*(?:mixes, by|a geometric mean).*$", README, re.MULTILINE)
    assert len(sentences) == 3
    for text in (EVIDENCE, HELPS):
        assert all(sentence in text for sentence in sentences)


def test_the_evidence_has_all_methods_that_were_to_be_compared():
    five = {"ar3po", "ebpo", "spo", "v05"}
    assert {name for (name,) in columns(EVIDENCE, "## Published methods", "method")} >= five
    asked = set(re.findall(r"\w+", "spo_pp reinforce_pp pac bots prime_pools adarft sgpo a_star_po aero")) | five
    methods = (ROOT / "METHODS.md").read_text(encoding="utf-8")
    assert {name.strip("`") for (name,) in columns(methods, "## Learning", "method")} >= asked
    assert not re.search(r"_0\.1\b", EVIDENCE)


def test_the_figures_of_three_generations_are_those_of_the_evidence():
    section = EVIDENCE.partition("## Three generations a step")[2].partition("\n## ")[0]
    share = re.search(r"Rollouts to uniform's final success\*\*: (\S+ \([^)]*\)) of uniform's", section).group(1)
    mean, coverage = re.search(r"less `adaptive`'s\*\*: mean \+(\S+) .*pass@64 \+(\S+) ", section).groups()
    readme, choose = (
        " ".join(text.split()) for text in (README, (ROOT / "docs/choose.md").read_text(encoding="utf-8"))
    )
    assert f"all failed: {share} of uniform's rollouts, and {coverage} more coverage" in readme
    assert f"the mean is {mean} higher, and pass@64 {coverage}" in choose


def test_the_shares_of_four_sizes_are_those_of_the_table():
    scale = (ROOT / "benchmarks/scale/README.md").read_text(encoding="utf-8")
    shares = sorted(share.split()[0] for (share,) in columns(scale, "## One language at four sizes", "share"))
    for page in (scale, HELPS):
        assert f"after {shares[0]} to {shares[-1]} of uniform's rollouts" in " ".join(page.split())


def test_the_readme_says_with_which_models_and_how_many_seeds_it_was_measured():
    lead = " ".join(README[README.index("## Does it help?") :].split("\n- ")[0].split())
    rows = columns(EVIDENCE, "## Does the default", "mix", "seeds")
    numbers = {"two": 2, "three": 3, "five": 5, "ten": 10, "eleven": 11, "twelve": 12}
    mixes, size, seeds = re.search(
        r"has (\w+) mixes of tasks, language models of (.+), and (\w+) seeds each", lead
    ).groups()
    assert size == "340 k parameters"
    assert f"models of {size}" in EVIDENCE
    assert numbers[mixes] == len(rows)
    assert {numbers[seeds]} == {int(seed) for _, seed in rows}


def test_sentences_by_hand_have_the_figures_of_the_evidence():
    """Those that `pages.py` does not write: after new runs they are read again."""
    wanted = "mix", "mean less uniform's", "pass@64 less uniform's", "share"
    rows = {mix: cells for mix, *cells in columns(EVIDENCE, "## Does the default", *wanted)}
    choose = (ROOT / "docs/choose.md").read_text(encoding="utf-8")
    gain, _, _ = rows["hard_once"]
    assert "(0" in gain  # a little higher
    assert gain.replace("(", "(95 % interval ").removesuffix(")") in " ".join(choose.split())
    evidence = " ".join(EVIDENCE.split())
    loss, worst, best = re.match(r"-(\S+) \(-(\S+) to -(\S+)\)", rows["reasoning"][1]).groups()
    assert f"pass@64 ends {loss} ({best} to {worst}) below uniform's" in evidence
    assert f"(`easy_once`: {rows['easy_once'][0].split()[0].removeprefix('-')} lower, and its mean curve" in evidence
    assert rows["easy_once"][2].endswith("never)")
    assert f"uniform's end after {rows['easy_once'][2].split()[0]} of the rollouts, or not at all" in evidence


@pytest.mark.slow
def test_where_the_gain_comes_from_is_told_with_figures_that_a_script_prints():
    command, environment = [sys.executable, "benchmarks/learning/ablation.py"], os.environ | {"PYTHONPATH": str(ROOT)}
    printed = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    parts = re.search(r"mean less uniform's \|[ |]*\+(\S+) \| \+(\S+) \| \+(\S+)", printed).groups()
    for text in (README, HELPS, EVIDENCE):
        told = re.findall(r"(0\.\d+)(?= with (?:the choice|the baseline|both))", " ".join(text.split()))
        assert told == list(parts)


def test_seconds_of_long_prompts_are_those_that_were_measured():
    costs = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    lines = [line.removeprefix("on").split() for line in costs.splitlines() if re.match(r"on +\d", line)]
    took = {(int(prompt), int(group)): float(ms) for prompt, answer, group, ms, *_ in lines if answer == "16"}
    long = re.search(
        r"of 768 tokens took (\d+) ms a rollout alone and (\d+) ms in groups of 8", " ".join(README.split())
    )
    assert [float(ms) for ms in long.groups()] == [round(took[768, 1]), round(took[768, 8])]
    for row in table(HELPS, "## Are fewer rollouts less time?"):
        prompt = int(row[0].split()[0])
        assert row[1:] == [f"{took[prompt, 1]:.2f} ms", f"{took[prompt, 8]:.2f} ms"]
    choose = " ".join((ROOT / "docs/choose.md").read_text(encoding="utf-8").split())
    assert f"took {took[768, 1] / took[768, 8]:.1f} times as long as one in a group of 8" in choose


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
