"""The package as a whole: light to import, imports that run one way, a public surface that is pinned."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import budgetalloc

ROOT = Path(budgetalloc.__file__).parent
# A module may import from the layers before its own, never from its own or a later one.
LAYERS = [
    {"errors"},
    {"ids", "checks"},
    {"budget", "processes"},
    {"posterior"},
    {"pool"},
    {"estimators", "values", "memory", "offpolicy"},
    {"solvers"},
    {"cpsat", "sampling"},
    {"advantages", "downselect", "buffers", "tokens", "trees"},
    {"policies"},
    {"pacing", "bandits", "methods"},
    {"config"},
    {"state", "ledger"},
    {"readers", "known", "visits"},
    {"worlds", "replay", "testing", "onestep"},
    {"simulate"},
    {"evaluate"},
    {"report"},
    {"trl"},
    {"testbed"},
    {"cli"},
]
LAYER = {name: at for at, layer in enumerate(LAYERS) for name in layer}
# Inside a folder, the same.
INSIDE_POLICIES = [
    "decision",
    "base",
    "compose",
    "selection",
    "gains",
    "valued",
    "exposure",
    "variance",
    "categories",
    "recommended",
    "chosen",
    "explorable",
    "rounds",
    "hints",
    "planner",
    "focus",
    "hardness",
    "gates",
    "staged",
    "generate_more",
    "__init__",
]


def imports(path: Path) -> set[str]:
    """The dotted names below `budgetalloc` that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module == "budgetalloc":
                found |= {alias.name for alias in node.names}
            elif (node.module or "").startswith("budgetalloc."):
                found.add(node.module.removeprefix("budgetalloc."))
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("budgetalloc.") for a in node.names if a.name.startswith("budgetalloc.")}
    return found


MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    own = parts[0]
    assert own in LAYER, f"{own} has no place in the order of imports: give it one"
    for name in imports(path):
        target = name.split(".")[0]
        if own == "policies" and target == "policies":
            there = name.split(".")[1]
            assert INSIDE_POLICIES.index(there) < INSIDE_POLICIES.index(parts[1]), f"{path} imports {name}"
        elif (own, target) == ("ledger", "readers"):
            assert path.name == "ledger.py"  # Ledger.read, when it is called: readers make ledgers
        elif target in LAYER:
            assert LAYER[target] < LAYER[own] or (target == own and len(parts) > 1), f"{path} imports {name}"
        else:  # a name of the package itself, which imports the core: only what nothing in the core imports may
            assert LAYER[own] >= LAYER["trl"], f"{path} imports {name}"


@pytest.mark.parametrize("package", ["torch", "trl", "transformers", "datasets", "accelerate"])
def test_only_trl_and_the_testbed_import_torch_and_friends(package):
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] in ("trl", "testbed"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert package not in [n.split(".")[0] for n in names], path


def test_importing_loads_nothing_heavy():
    heavy = ["torch", "trl", "transformers", "datasets", "accelerate", "ortools", "matplotlib", "scipy", "pandas"]
    heavy += ["pyarrow", "yaml", "tqdm"]
    code = f"import sys, budgetalloc; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_deciding_loads_nothing_heavy():
    code = (
        "import sys, budgetalloc as ba; p = ba.adaptive(); p.allocate(range(9), ba.Budget(rollouts=16, floor=0));"
        "p.observe([1, 1], [0, 1]); print([m for m in ('torch', 'ortools', 'scipy') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


PUBLIC = """
Belief Beta BetaEstimator Budget BudgetError BudgetallocError InputError Learner Ledger LedgerWriter Needs Point Policy
Replay Solution StateError Step UnsupportedError
adaptive certify compare comparisons greedy group_advantages hit knapsack knapsack_rl load_state mixed_group
one_step_value ortools proportional save_state simulate thompson uniform variance
"""


def test_the_public_surface_is_pinned():
    names = {
        name
        for name, value in vars(budgetalloc).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert names == set(PUBLIC.split())


def test_every_public_name_is_documented():
    for name in PUBLIC.split():
        assert getattr(budgetalloc, name).__doc__, name


@pytest.mark.parametrize(
    ("error", "base"),
    [
        ("BudgetError", ValueError),
        ("InputError", ValueError),
        ("StateError", ValueError),
        ("UnsupportedError", NotImplementedError),
    ],
)
def test_errors_have_two_bases(error, base):
    assert issubclass(getattr(budgetalloc, error), base)
    assert issubclass(getattr(budgetalloc, error), budgetalloc.BudgetallocError)


def test_the_version_is_a_version():
    assert [part.isdigit() for part in budgetalloc.__version__.split(".")] == [True] * 3
