"""The pages of docs/: their code runs and prints what they say, and what they list is what the package has.

A block of Python marked ```python runs, with those before it on its page; a ```text block right after it is its output.
A block marked ```py needs a trainer or your data: it must only compile.
"""

import ast
import contextlib
import inspect
import io
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.beliefs.posterior import Beta
from budgetalloc.cli.parser import parser
from budgetalloc.methods.table import METHODS
from budgetalloc.training.metrics import of_lost

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), DOCS / "api" / "index.md"]
BLOCK = re.compile(r"^```(python|py)\n(.*?)^```(?:\n+```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
names = [path.relative_to(DOCS).as_posix() for path in PAGES]


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names if "```python\n" in text_of(name)])
def test_code_prints_what_the_page_says(name, tmp_path, monkeypatch):
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")  # read, while files are written elsewhere
    monkeypatch.chdir(tmp_path)
    space = {}
    for kind, code, output in BLOCK.findall(text_of(name)):
        if kind == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(code, f"{name}: {code.splitlines()[0]}", "exec"), space)
            if output:
                assert said.getvalue().split() == output.split(), code


def test_getting_started_installs_the_tested_versions():
    commands = [line.strip() for line in text_of("start.md").splitlines() if line.startswith("    pip install")]
    tested = [command for command in commands if "-c constraints/tested.txt" in command]
    assert [command.split("constraints/tested.txt ")[1].split()[0] for command in tested] == ["torch", "'.[trl]'"]
    pinned = {
        line.split("==")[0] for line in (ROOT / "constraints/tested.txt").read_text().splitlines() if "==" in line
    }
    assert {"torch", "trl", "transformers"} <= pinned


def test_code_that_is_not_run_compiles():
    for name in names:
        for kind, code, _ in BLOCK.findall(text_of(name)):
            if kind == "py":
                compile(code, name, "exec")


# The keys of the metrics.


def metrics_of(rewards_R, ids_R, *, policy="adaptive", **options):
    """The metrics of a step in which the policy has seen "never" fail, "always" pass and "sometimes" do both."""
    kinds = ["never", "always", "sometimes", "new"]
    session = ba.Session(policy, ["reward"], pool=kinds, quiet=True, metrics="all", **options)
    session.policy.observe(["never", "always", "sometimes", "sometimes"], [0, 1, 0, 1])
    session.begin_among(kinds, ba.Budget(len(ids_R), floor=2), len(ids_R), 2)
    if options:  # the rollouts of a real decision
        session.begin([], len(ids_R), 2)
        ids_R = session.request()
    else:
        session.request()
    costs = {"costs_R": [1] * len(ids_R)} if session.reports else {}
    session.observe(ids_R, rewards_R, np.ones(len(ids_R)), **costs)
    return session.end().metrics


def logged_keys():
    """Every key of steps with all that can be asked for; those that the callback adds; those of trackers."""
    ids_R = [name for name in ("never", "always", "sometimes", "new") for _ in (0, 1)]
    domain = dict.fromkeys(["never", "sometimes"], "DOMAIN") | dict.fromkeys(["always", "new"], "other")
    keys = set(metrics_of([0, 1] * 4, ids_R))
    for mixture in ("learn", "adept"):
        given = {"domain": domain, "mixture": mixture, "cost": {"turns": 1.0}, "cost_per_step": 9.0}
        keys |= set(metrics_of([0, 1] * 4, ids_R, **given))
    keys = {key for key in keys if not key.endswith("/other")}
    keys |= set(of_lost(Beta([1.0], [1.0]), Beta([1.0], [1.0])))
    keys |= {"cost/at_bound", "cost/mean", "reused"}  # tests/contrib
    keys |= {"domain/age/DOMAIN", "domain/lag/DOMAIN"}  # tests/contrib/trl/test_rollout_worker.py
    keys |= {"hinted"}  # tests/trl/test_hints.py
    keys |= {"generated"}  # tests/trl/test_own_generation.py
    keys |= {key for key in metrics_of_a_shadow() if key.startswith("shadow/")}
    keys |= {"lengths/cap", "lengths/cut", "thoughts/forced"}  # in contrib/lengths, contrib/thought_and_answer
    keys |= {"trees/tokens", "trees/share", "trees/roots"}  # in contrib/trees
    keys |= {"gradient_agreement", "noise_scale"}  # in contrib/noise_scale
    step = ast.parse((ROOT / "budgetalloc/trl/step.py").read_text())
    for node in ast.walk(step):  # metrics["seconds"] = ..., metrics | {"frac_reward_zero_std": ...}
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            at = node.targets[0]
            if ast.unparse(at.value) == "metrics":
                keys.add(ast.literal_eval(at.slice))
        if isinstance(node, ast.BinOp) and ast.unparse(node.left) == "metrics" and isinstance(node.right, ast.Dict):
            keys |= {ast.literal_eval(key) for key in node.right.keys}
    trackers = (ROOT / "budgetalloc/trl/trackers.py").read_text()
    return keys | set(re.findall(r"\{_GROUP\}(\w+)", trackers))


def metrics_of_a_shadow():
    """Every key of a shadow: the run and its shadow have rewards and advantages that differ."""
    session = ba.Session("uniform", ["reward"], shadow="adaptive", pool=["a", "b", "c"])
    session.begin(["a", "b"], 8, 4)
    session.observe(session.request(), [1, 0, 1, 1, 0, 0, 0, 0], np.ones(8))
    return session.end().metrics


def documented_keys():
    """The first cells of the tables of metrics.md; one may have several keys."""
    cells = re.findall(r"^\| ((?:`[\w/]+`(?:, )?)+) \|", text_of("metrics.md"), re.MULTILINE)
    return set(re.findall(r"`([\w/]+)`", " ".join(cells)))


def test_every_metric_is_explained_and_nothing_else():
    documented, logged = documented_keys(), logged_keys()
    same = {key for key in logged if key.startswith("shadow/") and key.removeprefix("shadow/") in documented}
    assert documented == logged - same


def test_the_panel_of_trackers_has_a_healthy_range_for_each_metric():
    source = ast.parse((ROOT / "budgetalloc/trl/trackers.py").read_text())
    panel = next(x for x in source.body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "PANEL")
    rows = re.findall(r"^\| `([\w/]+)` \| .+ \| .+ \| .+ \|$", text_of("metrics.md"), re.MULTILINE)
    assert rows == re.findall(r"'([\w/]+)'", ast.unparse(panel.value))


# The texts of errors and warnings.


def messages():
    """Every text of the package, with "…" for each value in it."""
    for path in (ROOT / "budgetalloc").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(x.value) if isinstance(x, ast.Constant) else "…" for x in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 20:
                yield re.sub(r"%(\+?[.\d]*)[sdgfr]", "…", node.value)


def test_every_text_of_troubleshooting_is_one_of_the_package():
    """In order, with any values between the parts; "…" at an end of a quotation stands for nothing needed."""
    all_messages = list(messages())
    quoted = re.findall(r"^> (.+)$", text_of("troubleshooting.md"), re.MULTILINE)
    assert quoted
    for quotation in quoted:
        parts = [part.strip() for part in quotation.split("…") if part.strip(" .")]
        pattern = re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)
        assert any(pattern.search(message) for message in all_messages), quotation


# What a page lists.


def test_the_reference_has_every_public_name_and_every_method():
    reference = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    entries = {line.split()[1] for line in reference.splitlines() if line.startswith(":::")}
    named = {entry.rpartition(".")[2] for entry in entries}
    assert {method.name for method in METHODS} <= named
    errors = re.search(r"members: \[(.*)\]", reference)[1].split(", ")
    public = {name for name, value in vars(ba).items() if not name.startswith("_") and not isinstance(value, type(ba))}
    assert public <= named | set(errors)


def test_the_page_at_a_glance_has_every_public_name_and_no_other():
    said = set(re.findall(r"`ba\.(\w+)`", text_of("api/index.md").split("## One example")[0]))
    assert said == set(ba.__all__)


@pytest.mark.slow
def test_every_function_of_the_reference_has_one_entry_and_an_example():
    pytest.importorskip("trl")
    pages = [path.read_text() for path in (DOCS / "api").glob("*.md")]
    entries = [line.split()[1] for page in pages for line in page.splitlines() if line.startswith("::: ")]
    assert len(entries) == len(set(entries))
    # Checks return nothing; `certify` has the example of its solvers.
    others = [entry for entry in entries if ".conformance." not in entry and not entry.endswith(".ortools")]
    functions = [found for found in map(pkgutil.resolve_name, others) if inspect.isfunction(found)]
    assert len(functions) > 80
    assert [found.__qualname__ for found in functions if ">>>" not in (found.__doc__ or "")] == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    for path in DOCS.rglob("*.md"):
        assert path.relative_to(DOCS).as_posix() in navigation, path


def test_every_command_is_on_the_first_page():
    commands = next(x for x in parser()._actions if x.dest == "command").choices
    assert set(commands) == set(re.findall(r"^\| `budgetalloc (\w+)", text_of("start.md"), re.MULTILINE))


# The pictures.

SVG = "{http://www.w3.org/2000/svg}"


def content(file):
    """The texts and colours of a picture, and every number of its lines and places."""
    root = ElementTree.parse(file).getroot()
    texts = [text.text for text in root.iter(f"{SVG}text")]
    colours = re.findall(r"#[0-9a-f]{6}\b", file.read_text(encoding="utf-8"))
    places = " ".join(x.get(name, "") for x in root.iter() for name in ("d", "x", "y"))
    return texts, colours, np.array([float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", places)])


@pytest.mark.slow
def test_every_picture_is_what_the_data_and_the_code_draw(tmp_path):
    """To a twentieth of a point: releases of matplotlib and processors round differently."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "docs/build/pictures.py", tmp_path], env=environment, check=True)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == sorted(path.name for path in (DOCS / "pictures").iterdir())
    for name in drawn:
        (texts, colours, now), (old_texts, old_colours, old) = (
            content(folder / name) for folder in (tmp_path, DOCS / "pictures")
        )
        assert (texts, colours) == (old_texts, old_colours), f"{name}: run `make pictures`"
        assert now.shape == old.shape, f"{name}: run `make pictures`"
        assert np.abs(now - old).max() < 0.05, f"{name}: run `make pictures`"


def test_every_picture_is_on_a_page():
    pages = [ROOT / "README.md", *DOCS.glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    shown = re.findall(r"pictures/(\w+\.svg)\)", " ".join(path.read_text(encoding="utf-8") for path in pages))
    assert set(shown) == {path.name for path in (DOCS / "pictures").iterdir()}
