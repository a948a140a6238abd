"""The table of methods: whole, printed, and the same as the page that is generated from it."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import budgetalloc as ba
from budgetalloc import policies, values
from budgetalloc.errors import InputError
from budgetalloc.methods import table as methods
from budgetalloc.methods.table import (
    CHECKED,
    DECIDES,
    METHODS,
    NAMED,
    SECTIONS,
    Method,
    method_of,
)
from budgetalloc.training.policy_like import policy_of

ROOT = Path(methods.__file__).parents[2]
FOLDER = Path(policies.__file__).parents[1]


def test_names_are_unique_and_sorted_by_section_and_by_what_was_checked():
    assert len({method.name for method in METHODS}) == len(METHODS)
    places = [(DECIDES.index(method.decides), CHECKED.index(method.checked)) for method in METHODS]
    assert places == sorted(places)
    assert list(SECTIONS) == list(DECIDES)


def function_of(method):
    return getattr(method.build, "func", method.build)


GUESSED = (
    r"(?i)not known to us|not found|not read|not verified|read through|paper's (lambda|value|is) .*not|figures suggest"
)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_docstring_that_admits_a_guess_has_a_note_or_is_a_description(method):
    """The table mentions guesses too."""
    if re.search(GUESSED, " ".join((function_of(method).__doc__ or "").split())):
        assert method.checked == "a description" or re.search("our default|not read|our bounds", method.note)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_row_is_complete(method):
    policy = method.build(seed=3)
    assert isinstance(policy, ba.Policy)
    assert policy.seed == 3
    assert policy.name.startswith(f"{method.name}(")
    assert method.formula
    assert (method.checked == methods.OURS) == (method.source == methods.OURS)
    assert "\n" not in method.formula + method.source + method.note
    paper_or_code = r"arXiv \d{4}\.\d{5}|[\w-]+/[\w-]+@[0-9a-f]{7}$"
    assert method.source == methods.OURS or re.match(paper_or_code, method.source), method.source
    assert not method.note or method.note.endswith(".")


UNNAMED = {"solver", "time_limit", "estimator", "features", "explore", "rounds"}  # named where they are not the default


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_name_of_a_policy_holds_its_settings(method):
    functions = {key: getattr(value, "__name__", value) for key, value in getattr(method.build, "keywords", {}).items()}
    name = method.build(seed=3).name
    for key, value in (method.defaults() | {"seed": 3}).items():
        shown = value if isinstance(value, (int, float, str)) else ""  # others have a form of their own
        assert f"{key}={shown}" in name or f"{key}={shown!r}" in name or key in UNNAMED
    assert all(f"{key}={value}" in name for key, value in functions.items())


@pytest.mark.parametrize("method", [m for m in METHODS if m.decides == methods.ROUNDS], ids=lambda method: method.name)
def test_what_decides_in_rounds_says_so(method):
    assert method.needs()["rounds"]


def test_needs_are_what_differs_from_plain_grpo():
    by_name = {method.name: method for method in METHODS}
    assert by_name["uniform"].needs() == {}
    assert by_name["uniform"].asks() == "nothing"
    assert by_name["adaptive"].asks() == "candidates all, baseline posterior, scale group, min_group 1"
    assert by_name["dapo"].asks() == "candidates 3, baseline group, generate 3, rounds"


def test_the_named_functions_are_all_there_are():
    public = {name for name, x in vars(values).items() if inspect.isfunction(x) and x.__module__ == values.__name__}
    assert set(NAMED["value"]) == {name for name in public if not name.startswith("_")}
    for functions in NAMED.values():
        assert functions == {function.__name__: function for function in functions.values()}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_argument_is_a_plain_value_or_a_function_of_the_user(method):
    defaults, functions = method.defaults(), method.functions()
    assert {*defaults, *functions} == set(inspect.signature(function_of(method)).parameters)
    assert not any(callable(default) for default in defaults.values())
    assert repr(method.named(defaults | {"seed": 7})) == repr(method.build(seed=7))
    assert all(key in functions for key in getattr(method.build, "keywords", ()))


def test_functions_are_given_by_their_names():
    assert method_of("knapsack").defaults()["value"] == "mixed_group"
    policy = method_of("knapsack").named({"value": "hit", "solver": "ortools"})
    assert policy.name.startswith("knapsack(value=hit")
    assert policy.allocate([1, 2], ba.Budget(8)).sum() == 8
    for wrong in ("hits", ["hit"], 3):
        with pytest.raises(InputError, match=r"value=.*use one of \('mixed_group', 'hit', 'variance', 'success_gain'"):
            method_of("knapsack").named({"value": wrong})


def test_functions_of_the_user_are_no_plain_values():
    assert list(method_of("sec").functions()) == ["domain_of"]
    assert method_of("gate").functions() == {"predict": None}
    assert method_of("gate").defaults()["group"] == 8


@pytest.mark.parametrize("name", ["pod", None, ["pods"], {}])
def test_an_unknown_method_names_the_nearest(name):
    near = ", did you mean pods?" if name == "pod" else ""
    with pytest.raises(InputError, match=re.escape(f"policy {name!r} is unknown{near}")):
        method_of(name)


def test_every_function_that_builds_a_policy_has_a_row():
    """Read from the sources: public functions that return a Policy and take keywords only."""
    functions = [
        node
        for path in FOLDER.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.args.posonlyargs + node.args.args
    ]
    builders = {node.name for node in functions if ast.unparse(node.returns or ast.Constant(0)) == "Policy"}
    assert builders == {method.name for method in METHODS}


def test_the_page_lists_exactly_these_methods():
    """METHODS.md is written by benchmarks/methods.py. Its measurements are not compared."""
    page = (ROOT / "METHODS.md").read_text()
    assert "benchmarks/methods.py --write" in page.splitlines()[0]
    listed, decides = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            decides = line.removeprefix("## ").lower()
        elif decides in DECIDES and line.startswith("| `"):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            listed.append((decides, cells[0].strip("`"), *cells[1:4]))
    sources = [m.source if m.source == m.checked else f"{m.source}; {m.checked}" for m in METHODS]
    rows = [(m.decides, m.name, m.formula, source, m.asks()) for m, source in zip(METHODS, sources, strict=True)]
    assert listed == rows, "METHODS.md is out of date: run python benchmarks/methods.py --write --keep"


def test_a_method_of_your_own_can_be_a_row():
    own = Method("own", ba.uniform, decides="which prompts", formula="n = 8", source="ours")
    assert own.asks() == "nothing"
    assert not own.in_rounds()


@pytest.mark.parametrize("given", ["thompson", ba.thompson, lambda seed: ba.thompson(seed=seed)])
def test_an_argument_may_be_a_policy_a_name_or_a_function(given):
    policy = policy_of(given, seed=4)
    assert (policy.name, policy.seed) == (ba.thompson(seed=4).name, 4)
    assert policy_of(policy) is policy


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("adaptve", r"policy 'adaptve' is unknown, did you mean adaptive\?"),
        ("dump", r"rival='dump' needs the function domain_of=.*methods.dump\(domain_of=\.\.\.\)"),
        (5, r"rival=5 is of type int: give a policy such as ba.adaptive\(\), a name such as 'adaptive', or a function"),
        (None, "rival=None is of type NoneType: give a policy"),
        (ba, "rival=<module 'budgetalloc'.* is of type module: give a policy"),
        (ba.methods.on_all_fail, "rival=<function on_all_fail .* was called and raised TypeError, .*missing"),
        (ba.Policy, "rival=<class .*Policy'> was called and raised TypeError, .*missing"),
        (lambda: 3, "returned 3 of type int: give a policy"),
    ],
)
def test_what_is_no_policy_is_shown(given, message):
    with pytest.raises(InputError, match=message):
        policy_of(given, "rival")


def test_a_method_names_an_argument_that_it_does_not_have():
    with pytest.raises(InputError, match=r"knapsack\(valu=\) is unknown, did you mean value\? Use one of value"):
        method_of("knapsack").named({"valu": "hit"})
