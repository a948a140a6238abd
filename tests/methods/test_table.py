"""The table of methods: complete rows, made from the functions, and the same as the page that is generated from it."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import budgetalloc as ba
from budgetalloc import values
from budgetalloc.errors import InputError
from budgetalloc.methods import table
from budgetalloc.methods.table import METHODS, NAMED, SECTIONS, Method, method_of, published

ROOT = Path(table.__file__).parents[2]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


def function_of(method):
    return getattr(method.build, "func", method.build)


@each_method
def test_a_row_is_complete(method):
    policy = method.build(seed=3)
    assert policy.seed == 3
    assert policy.name.startswith(f"{method.name}(")
    assert re.fullmatch(r"[A-Z][^=*^]+\.", method.summary), "say in words what the method does; the formula follows"
    assert (method.checked == "ours") == (method.source == "ours")
    assert method.source == "ours" or (method.formula and method.checked in method.note)
    paper_or_code = r"arXiv \d{4}\.\d{5}|[\w-]+/[\w-]+@[0-9a-f]{7}$"
    assert method.source == "ours" or re.match(paper_or_code, method.source), method.source
    assert not method.note or method.note.endswith(".")


OPTIONAL = {
    "solver",
    "time_limit",
    "estimator",
    "features",
    "explore",
    "rounds",
}  # named if not the default


@each_method
def test_the_name_of_a_policy_holds_its_settings(method):
    name = method.build(seed=3).name
    for key, value in (method.defaults() | {"seed": 3}).items():
        assert f"{key}={value}" in name or f"{key}={value!r}" in name or key in OPTIONAL
    assert all(f"{key}=" in name for key in method.functions())


@each_method
def test_every_argument_is_a_plain_value_or_a_function_of_the_user(method):
    defaults, functions = method.defaults(), method.functions()
    assert {*defaults, *functions} == set(inspect.signature(function_of(method)).parameters)
    assert not any(callable(default) for default in defaults.values())
    assert repr(method.named(defaults | {"seed": 7})) == repr(method.build(seed=7))


def test_every_function_that_builds_a_policy_has_a_row():
    """Read from the sources: public functions that return a Policy and take keywords only."""
    functions = [
        node
        for room in ("policies", "methods")
        for path in (ROOT / "budgetalloc" / room).rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.args.posonlyargs + node.args.args
    ]
    builders = {node.name for node in functions if ast.unparse(node.returns or ast.Constant(0)) == "Policy"}
    assert builders == {method.name for method in METHODS}
    assert len(builders) == len(METHODS)
    assert all(hasattr(ba.methods, method.name) for method in METHODS if method.source != "ours")


def test_needs_are_what_differs_from_plain_grpo():
    assert method_of("uniform").needs() == {}
    assert method_of("uniform").asks() == "nothing"
    assert method_of("adaptive").asks() == "candidates all, baseline posterior, scale none, min_group 1"
    assert method_of("dapo").asks() == "candidates 3, baseline group, generate 3, rounds"
    assert all(("rounds" in method.needs()) == (method.decides == "in rounds") for method in METHODS)


def test_functions_are_given_by_their_names():
    public = {name for name, x in vars(values).items() if inspect.isfunction(x) and x.__module__ == values.__name__}
    assert set(NAMED["value"]) == {name for name in public if not name.startswith("_")}
    assert method_of("knapsack").defaults()["value"] == "mixed_group"
    policy = method_of("knapsack").named({"value": "pass_at_n", "solver": "ortools"})
    assert policy.name.startswith("knapsack(value=pass_at_n")
    for wrong in ("pass_at", ["pass_at_n"], 3):
        with pytest.raises(
            InputError, match=r"value=.*use one of \('mixed_group', 'pass_at_n', 'variance', 'success_gain'"
        ):
            method_of("knapsack").named({"value": wrong})
    assert list(method_of("sec").functions()) == ["domain_of"]


@pytest.mark.parametrize("name", ["pod", None, ["pods"], {}])
def test_an_unknown_method_names_the_nearest(name):
    near = ", did you mean pods?" if name == "pod" else ""
    with pytest.raises(InputError, match=re.escape(f"policy {name!r} is unknown{near}")):
        method_of(name)


def test_a_method_names_an_argument_that_it_does_not_have():
    with pytest.raises(InputError, match=r"knapsack\(valu=\) is unknown, did you mean value\? Use one of value"):
        method_of("knapsack").named({"valu": "pass_at_n"})
    with pytest.raises(InputError, match=r"vade\(grop=\) is unknown, did you mean group\?"):
        ba.methods.vade(grop=8)


def test_the_page_lists_exactly_these_methods():
    """METHODS.md is written by benchmarks/methods.py. Its measurements are not compared."""
    listed, decides = [], ""
    for line in (ROOT / "METHODS.md").read_text().splitlines():
        if line.startswith("## "):
            decides = line.removeprefix("## ").lower()
        elif decides in SECTIONS and line.startswith("| `"):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            source = re.sub(r"\[(.*?)\]\(https://arxiv\.org/abs/\1\)", r"arXiv \1", cells[2])
            listed.append((decides, cells[0].strip("`"), cells[1].replace(" *Starves*.", ""), source))
    checked = {"paper's formulas": "; formulas", "a description": "; description"}
    sources = [m.source + checked.get(m.checked, "") for m in METHODS]
    rules = ["<br>".join(filter(None, (m.summary, m.formula))) for m in METHODS]
    rows = [(m.decides, m.name, *cells) for m, *cells in zip(METHODS, rules, sources, strict=True)]
    assert listed == rows, "METHODS.md is out of date: run python benchmarks/methods.py --write --keep"
    assert published() == len(rows) - sum(m.source == "ours" for m in METHODS)


def test_a_method_of_your_own_can_be_a_row():
    own = Method("own", ba.uniform, "which prompts")
    assert own.asks() == "nothing"
    assert not own.in_rounds()
