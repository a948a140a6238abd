"""The package as a whole: few rooms, light to import, imports that run one way, a public surface that is pinned."""

import ast
import graphlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import budgetalloc

ROOT = Path(budgetalloc.__file__).parent
ROOMS = [
    "errors",
    "budget",
    "beliefs",
    "values",
    "solvers",
    "policies",
    "methods",
    "logs",
    "training",
    "contrib",
    "offline",
    "report",
    "testing",
    "trl",
    "verl",
    "axolotl",
    "cli",
]
"""A module imports from its own room, without a circle, and from the rooms before it. Modules of contrib are parts of
several rooms: for them only circles are forbidden."""

OF_TRL = {
    "contrib.completions",
    "contrib.generation",
    "contrib.lengths",
    "contrib.noise_scale",
    "contrib.rollout_worker",
}
OF_TRL |= {f"contrib.{name}" for name in ("stored_responses", "thought_and_answer", "tree_growth", "trees")}


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """The modules of `budgetalloc` that a file imports, anywhere in it, as dotted names below the package."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            parts = (node.module or "").split(".")
            if parts[0] == "budgetalloc":
                for alias in node.names:
                    name = ".".join([*parts[1:], alias.name])
                    imported.add(name if name in MODULES else ".".join(parts[1:]))
        elif isinstance(node, ast.Import):
            imported |= {a.name.removeprefix("budgetalloc.") for a in node.names if a.name.startswith("budgetalloc.")}
            assert all(a.name != "budgetalloc" for a in node.names), f"{path}: import the module that has the name"
    return imported


MODULES = {dotted(path): path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"}


def test_every_entry_of_the_package_is_a_room():
    entries = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert entries == {"__init__", *ROOMS}


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_one_way(name):
    if name.startswith("contrib"):
        return
    own = ROOMS.index(name.split(".")[0])
    for other in imports(MODULES[name]):
        assert other, f"{name} imports from the package itself: import the module that has the name"
        if other.startswith("contrib."):
            continue
        room = ROOMS.index(other.split(".")[0])
        assert room <= own, f"{name} imports {other}"
        folder = name.rpartition(".")[0]
        assert room < own or other != folder, f"{name} imports its own package {other}: import the module"


def test_no_room_has_a_circle_of_imports():
    graph = {name: {other for other in imports(path) if other != name} for name, path in MODULES.items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


@pytest.mark.parametrize("package", ["torch", "trl", "transformers", "datasets", "accelerate"])
def test_only_trainers_and_the_testbed_import_torch_and_friends(package):
    for name, path in MODULES.items():
        if name.startswith(("trl.", "verl.", "cli.testbed")) or name in OF_TRL:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert package not in [n.split(".")[0] for n in names], path


HEAVY = "torch trl transformers datasets accelerate ortools matplotlib scipy pandas pyarrow yaml tqdm cloudpickle"
HEAVY = {*HEAVY.split(), "joblib", "ray", "wandb"}
ALLOWED = {"the settings": {"yaml"}, "methods": {"scipy"}}
COMMAND = "from budgetalloc.cli.__main__ import main; main(['{}'])"
LIGHT = {
    "the package": "import budgetalloc",
    "a decision": (
        "import budgetalloc as ba; p = ba.adaptive(); p.allocate(range(9), ba.Budget(rollouts=16, floor=0));"
        "p.observe([1, 1], [0, 1])"
    ),
    "a published method": "import budgetalloc.methods",
    "writing a ledger": (
        "import budgetalloc as ba; ba.LedgerWriter('l.jsonl').append(0, ['a'], [1.0], [9], [0.5], [1])"
    ),
    "the settings": "import budgetalloc.cli.config",
    "the task language": "import budgetalloc.cli.testbed.skills",
    **{command: COMMAND.format(command) for command in ("methods", "recipe")},
}


@pytest.mark.parametrize("name", LIGHT)
def test_nothing_heavy_is_loaded_where_it_is_not_needed(name, tmp_path):
    code = f"import sys; {LIGHT[name]}; print(sorted({HEAVY - ALLOWED.get(name, set())} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.splitlines()[-1] == "[]"


def test_all_budgets_are_served_without_ortools():
    code = """
import sys
sys.modules["ortools"] = None
import budgetalloc as ba
rollouts, domains = {"rollouts": 16, "floor": 0, "cap": 8, "min_group": 1}, {"domains_P": ["a", "b", "b"]}
for policy in (ba.uniform(), ba.knapsack(), ba.adaptive()):
    for more in ({}, {"tokens": 900.0}, {"quotas": {"a": (4, 6)}}, {"tokens": 900.0, "quotas": {"a": (4, 6)}}):
        budget = ba.Budget(**rollouts, **more)
        counts_P = policy.allocate(["x", "y", "z"], budget, [50.0, 40.0, 60.0], **domains)
        assert counts_P.sum() == 16 and (not budget.quotas or 4 <= counts_P[0] <= 6), (policy, budget, counts_P)
try:
    ba.knapsack(solver=ba.ortools).allocate(["x", "y"], ba.Budget(rollouts=8, tokens=400.0), [50.0, 40.0])
except ba.UnsupportedError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "pip install 'budgetalloc[ortools]'" in run.stdout


PUBLIC = """
Belief Beta BetaEstimator Budget BudgetError BudgetallocError Features InputError Learner Ledger LedgerWriter Needs
Options Part Point Policy Pool Replay Session Solution StateError Step TrackingEstimator UnsupportedError
adaptive certify compare comparisons greedy group_advantages highs knapsack success_gain load_state mixed_group
ortools pass_at_n proportional save_state simulate thompson uniform variance
"""

ERRORS = {name for name in PUBLIC.split() if name.endswith("Error")}


def test_dir_shows_what_is_public_and_nothing_else():
    rooms = set(budgetalloc._LATER) | {"policies"}
    assert set(dir(budgetalloc)) == {*PUBLIC.split(), *rooms, "__version__"}
    assert set(budgetalloc.__all__) == {*PUBLIC.split(), *rooms}
    index = (ROOT.parent / "docs/api/index.md").read_text()
    assert all(f"`ba.{name}`" in index for name in {*PUBLIC.split()} - ERRORS)


@pytest.mark.slow
def test_the_wheel_has_every_module_and_the_page_of_the_report(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT.parent, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(path).namelist())
    assert "budgetalloc/report/page.html" in inside
    modules = {name for name in inside if name.endswith(".py") and not name.startswith("budgetalloc/cli/recipes/")}
    assert modules == {f"budgetalloc/{file.relative_to(ROOT)}" for file in ROOT.rglob("*.py")}


@pytest.mark.parametrize(
    ("missing", "code", "message"),
    [
        ("transformers", "from budgetalloc.trl import AdaptiveGRPOCallback", "AdaptiveGRPOCallback needs transformers"),
        ("trl", "from budgetalloc.trl import AdaptiveRolloutWorker", "AdaptiveRolloutWorker needs trl"),
        (
            "pandas",
            "ba.compare({'u': ba.uniform()}, ba.testing.log_of(ba.testing.three_kinds(), 2), 8)",
            "needs pandas",
        ),
    ],
)
def test_what_needs_an_extra_that_is_missing_names_the_extra(missing, code, message):
    program = f"import sys; sys.modules[{missing!r}] = None; import budgetalloc as ba; {code}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    error = run.stderr.splitlines()[-1]
    assert "UnsupportedError" in error
    assert message in error
    assert "pip install" in error


def test_a_method_that_is_looked_for_in_the_package_is_named():
    with pytest.raises(AttributeError, match=r"no attribute 'knapsack_rl'\. Use budgetalloc\.methods\.knapsack_rl"):
        _ = budgetalloc.knapsack_rl
    with pytest.raises(AttributeError, match=r"no attribute 'knapsack_rll', did you mean knapsack_rl\?"):
        _ = budgetalloc.knapsack_rll


def test_an_old_name_is_refused_with_the_new_one():
    with pytest.raises(AttributeError, match=r"It is budgetalloc\.pass_at_n now\."):
        getattr(budgetalloc, "hit")  # noqa: B009
