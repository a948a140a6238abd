"""Breaks one expression of the core at a time and runs its tests: a mutant that no test notices is a survivor.

    python benchmarks/mutants.py [--sample 300] [--seed 0] [--only solvers/greedy] [--all] [--jobs 2]

Each mutant is the package with one change (a comparison, an operator, a number, min for max, a statement removed ...),
on which the module's own tests and doctests run, quick ones first, until one fails. Each run is a fork of a process
that has imported pytest and numpy but nothing of budgetalloc. A module's constants are choices, not rules, and stay.
Survivors that cannot be killed are listed with a reason in `benchmarks/mutants_accepted.txt`; any other survivor makes
the exit code 1.
"""

import argparse
import ast
import compileall
import copy
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ortools.sat.python.cp_model  # noqa: F401  what the package imports, so that the forks have it
import pytest
import scipy.optimize
import scipy.stats  # noqa: F401
import yaml  # noqa: F401
from hypothesis import Phase, settings

HOME = Path(__file__).resolve().parent.parent
ACCEPTED = Path(__file__).with_name("mutants_accepted.txt")
ARGUMENTS = "tests/test_arguments.py::test_a_bad_value_of_any_argument_is_an_error_that_budgetalloc_raises_on_purpose"
NOT_RUN = 70  # an exit status that pytest does not use
# What tests each module besides its doctests: files of `tests/`, and calls of `tests/test_arguments.py`.
TESTS = {
    "solvers/interface": (
        ["solvers/test_interface.py", "solvers/test_greedy.py", "policies/test_composition.py"],
        ["greedy", "greedy, tokens"],
    ),
    "solvers/greedy": (["solvers/test_greedy.py", "solvers/test_domains.py"], ["greedy", "greedy, tokens"]),
    "solvers/proportional": (
        ["solvers/test_proportional.py", "solvers/test_domains.py"],
        ["proportional", "systematic"],
    ),
    "solvers/domains": (["solvers/test_domains.py", "solvers/test_exact.py"], []),
    "solvers/exact": (["solvers/test_exact.py"], ["certify", "highs", "ortools"]),
    "beliefs/estimator": (
        ["beliefs/test_estimator.py"],
        ["BetaEstimator", "Estimator.cold", *(f"BetaEstimator.{x}" for x in ("observe", "belief", "load_state_dict"))],
    ),
    "policies/retries": (["policies/test_retries.py"], []),
    "beliefs/ids": (["beliefs/test_ids.py", "beliefs/test_estimator.py"], ["check_ids", "text_id"]),
    "beliefs/memory": (["beliefs/test_memory.py"], ["Memory"]),
    "beliefs/posterior": (
        ["beliefs/test_posterior.py", "test_values.py", "beliefs/test_estimator.py"],
        [
            *("Beta", "Point", "Point.moment", "Point.all_pass"),
            *(f"Beta.{x}" for x in ["moment", "tilt", "sample", "take", "all_pass", "all_fail"]),
        ],
    ),
    "beliefs/lengths": (["beliefs/test_lengths.py"], []),
    "beliefs/expected_reward": (["beliefs/test_expected_reward.py", "policies/test_advantages.py"], []),
    "beliefs/rewards": (["beliefs/test_rewards.py", "beliefs/test_estimator.py"], ["check_range"]),
    "beliefs/state": (["beliefs/test_state.py"], []),
    "policies/group_advantages": (
        ["policies/test_advantages.py"],
        ["group_advantages", "group_advantages, posterior"],
    ),
    "policies/rollouts": (["policies/test_advantages.py", "training/test_size_of_advantages.py"], []),
    "policies/advantages": (["policies/test_advantages.py", "training/test_size_of_advantages.py"], []),
    "policies/adaptive": (["policies/test_adaptive.py", "policies/test_composition.py"], ["adaptive"]),
}
OPERATORS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div},
    **{ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
}
_PAIRS = "min max, minimum maximum, argmin argmax, fmin fmax, any all, floor ceil, zeros ones, zeros_like ones_like"
NAMES = {a: b for pair in _PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of this node."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare):
        new.ops[0] = OPERATORS[type(new.ops[0])]()
        yield new
    elif isinstance(new, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(new.op) in OPERATORS:
        new.op = OPERATORS[type(new.op)]()
        yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, (ast.Not, ast.USub, ast.Invert)):
        yield new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, (bool, int, float)):
        new.value = not new.value if isinstance(new.value, bool) else new.value + 1
        yield new
    elif isinstance(new, ast.Name) and new.id in NAMES:
        new.id = NAMES[new.id]
        yield new
    elif isinstance(new, ast.Attribute) and new.attr in NAMES:
        new.attr = NAMES[new.attr]
        yield new
    elif isinstance(new, ast.Call) and getattr(new.func, "attr", "") in ("maximum", "minimum", "clip"):
        yield new.args[0]
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if is_call or isinstance(node, (ast.Raise, ast.Continue, ast.Break, ast.AugAssign)):
        yield ast.Pass()


def mutants(module: str) -> list[tuple[str, str]]:
    """Every mutant of a module: what is changed, in words that do not depend on line numbers, and the source."""
    tree = ast.parse(source_of(module))
    made: list[tuple[str, str]] = []
    again: Counter[str] = Counter()  # the same change at several places of a function

    def visit(node: ast.AST, place: str) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for at, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or isinstance(child, (ast.Import, ast.ImportFrom)):
                    continue
                if not place and isinstance(child, (ast.Assign, ast.AnnAssign)):
                    continue
                # Another signal would end a process; the lists that zip's strict= guards have equal lengths.
                if getattr(getattr(child, "func", None), "attr", "") == "kill" or getattr(child, "arg", "") == "strict":
                    continue
                for new in changes(child):
                    put(node, field, at, value, new)
                    change = f"{module} {place}: `{one_line(child)}` -> `{one_line(new)}`"
                    again[change] += 1
                    key = change if again[change] == 1 else f"{change} ({again[change]})"
                    made.append((key, ast.unparse(ast.fix_missing_locations(tree))))
                    put(node, field, at, value, child)
                if not isinstance(child, ast.Raise):  # the text of an error
                    named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
                    visit(child, f"{place}.{child.name}".lstrip(".") if named else place)

    visit(tree, "")
    return made


def source_of(module: str) -> str:
    return (HOME / "budgetalloc" / f"{module}.py").read_text()


def put(node: ast.AST, field: str, at: int, value: object, new: ast.AST) -> None:
    if isinstance(value, list):
        value[at] = new
    else:
        setattr(node, field, new)


def one_line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:90]


class QuickFirst:
    """A plug-in of pytest: tests run in the order of the processor seconds that they took without a change."""

    def __init__(self, before: dict[str, float]) -> None:
        self.before = before
        self.seconds: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self.before.get(short(item.nodeid), 0.0))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.started = time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[short(nodeid)] = time.process_time() - self.started


def short(nodeid: str) -> str:
    """A test's name without its folder, which is a temporary one for doctests."""
    path, _, name = nodeid.partition("::")
    return f"{Path(path).name}::{name}"


def run_tests(folder: Path, module: str, order: QuickFirst) -> int:
    """Runs the tests of a module on the copy of the package in this folder; returns pytest's exit status."""
    files, calls = TESTS[module]
    words = ["-q", "-x", "--tb=short", "--assert=plain", "-m", "not slow", "-p", "_hypothesis_pytestplugin"]
    words += ["-p", "no:cacheprovider", f"--rootdir={HOME}", "-c", str(HOME / "pyproject.toml")]
    words += [str(folder / "budgetalloc" / f"{module}.py"), *(str(HOME / "tests" / file) for file in files)]
    words += [f"{HOME / ARGUMENTS}[{call}]" for call in calls]
    os.environ |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "mutants"}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    # Any failure is enough: a simpler example of it is not looked for.
    settings.register_profile("mutants", derandomize=True, database=None, phases=[Phase.explicit, Phase.generate])
    status = int(pytest.main(words, plugins=[order]))
    imported = str(getattr(sys.modules.get("budgetalloc"), "__file__", None))
    if status == 0 and not imported.startswith(str(folder)):
        print(f"The tests imported {imported}.")
        return NOT_RUN
    return status


def forked(folder: Path, module: str, before: dict[str, float], limit: int) -> tuple[int, float]:
    """The exit status of the module's tests, negative if a signal ended them, and the processor seconds they took."""
    pid = os.fork()
    if pid == 0:
        status = NOT_RUN
        try:
            with open(folder / "output", "w") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))  # a mutant may run for ever
            resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, 16 * 2**30))
            signal.alarm(30 * limit)  # or wait for ever
            order = QuickFirst(before)
            status = run_tests(folder, module, order)
            (folder / "seconds").write_text(json.dumps(order.seconds))
            sys.stdout.flush()
        finally:
            os._exit(status)
    _, status, usage = os.wait4(pid, 0)
    status = os.waitstatus_to_exitcode(status)
    if status not in (0, 1, 2) and status >= 0:
        raise SystemExit(f"pytest ended with {status}:\n{(folder / 'output').read_text()[-3000:]}")
    return status, usage.ru_utime + usage.ru_stime


FOLDER = Path()  # of this process


def begin(parent: str) -> None:
    """Copies the package into a folder of this process, and compiles it."""
    global FOLDER
    FOLDER = Path(tempfile.mkdtemp(dir=parent))
    shutil.copytree(HOME / "budgetalloc", FOLDER / "budgetalloc", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(FOLDER / "budgetalloc", quiet=2)


def unchanged(module: str) -> tuple[str, dict[str, float], float]:
    """Without a change: the seconds of each test, and of all of them by the processor."""
    status, seconds = forked(FOLDER, module, {}, 600)
    if status != 0:
        raise SystemExit(f"The tests of {module} fail without a change:\n{(FOLDER / 'output').read_text()[-3000:]}")
    return module, json.loads((FOLDER / "seconds").read_text()), seconds


def survives(task: tuple[str, str, str, dict[str, float], int]) -> tuple[str, bool, float]:
    """The mutant's name, whether all tests pass on it, and the processor's seconds."""
    module, key, source, before, limit = task
    file = FOLDER / "budgetalloc" / f"{module}.py"
    original = file.read_text()
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
    try:
        file.write_text(source)
        status, seconds = forked(FOLDER, module, before, limit)
    finally:
        file.write_text(original)
    return key, status == 0, seconds


def accepted() -> dict[str, str]:
    """The survivors that are known, with the reason of each."""
    lines = [line for line in ACCEPTED.read_text().splitlines() if line and not line.startswith("#")]
    return {key: reason for key, _, reason in (line.partition(" | ") for line in lines)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--only", default="", help="modules whose name begins so")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    options = parser.parse_args()
    known = accepted()
    drawn = [(m, *mutant) for m in TESTS if m.startswith(options.only) for mutant in mutants(m)]
    total = len(drawn)
    if not options.only and (gone := known.keys() - {key for _, key, _ in drawn}):
        raise SystemExit(f"{ACCEPTED.name} names mutants that there are no more: {sorted(gone)}")
    if not options.all and options.sample < total:
        drawn.sort(key=lambda mutant: hashlib.sha256(f"{options.seed} {mutant[1]}".encode()).digest())
        del drawn[options.sample :]  # by their names, so that a change of one function leaves the others in the sample
    judged = [mutant for mutant in drawn if mutant[1] not in known]
    survivors, spent = [], 0.0
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as parent, fork.Pool(options.jobs, begin, (parent,)) as pool:
        modules = dict.fromkeys(module for module, _, _ in judged)
        before = {module: (each, seconds) for module, each, seconds in pool.imap_unordered(unchanged, modules)}
        tasks = [(m, key, source, before[m][0], int(20 + 5 * before[m][1])) for m, key, source in judged]
        for at, (key, survived, seconds) in enumerate(pool.imap_unordered(survives, tasks), 1):
            spent += seconds
            if survived:
                survivors.append(key)
                print(f"survived: {key}", flush=True)
            if at % 25 == 0:
                print(f"{at} of {len(judged)}, {len(survivors)} survivors, {spent:.0f} s", file=sys.stderr, flush=True)
    print(
        f"mutants {len(drawn)} of {total}, killed {len(judged) - len(survivors)}, survivors {len(survivors)}, "
        f"accepted {len(drawn) - len(judged)}; {spent:.0f} processor seconds"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
