"""Breaks one expression of the core at a time and runs its tests: a mutant that no test notices is a survivor.

    python benchmarks/mutants.py [--sample 150] [--seed 0] [--only solvers/greedy] [--all]

Each mutant is a copy of the package with one change (a comparison, an operator, a number, min for max, a statement
removed ...), on which the module's own tests and doctests run until one fails. Survivors that cannot be killed are
listed with a reason in `benchmarks/mutants_accepted.txt`; any other survivor makes the exit code 1.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
ACCEPTED = Path(__file__).with_name("mutants_accepted.txt")
TESTS = {
    "solvers/base": "tests/solvers/test_base.py tests/solvers/test_greedy.py",
    "solvers/greedy": "tests/solvers/test_greedy.py",
    "solvers/proportional": "tests/solvers/test_proportional.py",
    "solvers/systematic": "tests/solvers/test_systematic.py",
    "solvers/exact": "tests/solvers/test_exact.py",
    "beliefs/estimator": "tests/beliefs/test_estimator.py",
    "beliefs/ids": "tests/beliefs/test_ids.py",
    "beliefs/memory": "tests/beliefs/test_memory.py",
    "beliefs/pooled": "tests/beliefs/test_pooled.py tests/beliefs/test_estimator.py",
    "beliefs/cold": "tests/beliefs/test_cold.py",
    "beliefs/graded": "tests/beliefs/test_graded.py tests/beliefs/test_estimator.py",
    "beliefs/saved": "tests/beliefs/test_estimator.py",
    "beliefs/posterior": "tests/beliefs/test_posterior.py tests/test_values.py",
    "beliefs/rewards": "tests/beliefs/test_rewards.py tests/beliefs/test_estimator.py",
    "beliefs/state": "tests/beliefs/test_state.py",
    "advantages": "tests/test_advantages.py",
    "policies/adaptive": "tests/policies/test_adaptive.py",
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

    def visit(node: ast.AST, place: str) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for at, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or isinstance(child, (ast.Import, ast.ImportFrom)):
                    continue
                for new in changes(child):
                    put(node, field, at, value, new)
                    key = f"{module} {place}: `{one_line(child)}` -> `{one_line(new)}`"
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


def survives(package: Path, module: str, source: str, timeout: float) -> bool:
    """Whether all tests of the module pass on this source."""
    file = package / "budgetalloc" / f"{module}.py"
    original = file.read_text()
    file.write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["--hypothesis-seed=0", f"--rootdir={HOME}", "-c", str(HOME / "pyproject.toml"), str(file)]
    command += [str(HOME / test) for test in TESTS[module].split()]
    environment = os.environ | {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(command, cwd=package, env=environment, capture_output=True, timeout=timeout)
        if ended.returncode not in (0, 1, 2):
            raise SystemExit(f"pytest ended with {ended.returncode}:\n{ended.stdout.decode()}{ended.stderr.decode()}")
        return ended.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_text(original)


def accepted() -> dict[str, str]:
    """The survivors that are known, with the reason of each."""
    lines = [line for line in ACCEPTED.read_text().splitlines() if line and not line.startswith("#")]
    return {key: reason for key, _, reason in (line.partition(" | ") for line in lines)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=150, help="how many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--all", action="store_true", help="every mutant (an hour or two)")
    parser.add_argument("--only", default="", help="modules whose name begins so")
    options = parser.parse_args()
    known = accepted()
    drawn = [(m, *mutant) for m in TESTS if m.startswith(options.only) for mutant in mutants(m)]
    total = len(drawn)
    if not options.all and options.sample < total:
        drawn = random.Random(options.seed).sample(drawn, options.sample)
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(HOME / "budgetalloc", Path(folder, "budgetalloc"), ignore=shutil.ignore_patterns("__pycache__"))
        limit = {}  # a mutant that takes much longer than the module itself runs for ever
        for module in dict.fromkeys(module for module, _, _ in drawn):
            started = time.monotonic()
            if not survives(Path(folder), module, ast.unparse(ast.parse(source_of(module))), 600):
                raise SystemExit(f"The tests of {module} fail without any change: run them first.")
            limit[module] = 20 + 5 * (time.monotonic() - started)
        for at, (module, key, source) in enumerate(drawn, 1):
            if key not in known and survives(Path(folder), module, source, limit[module]):
                survivors.append(key)
                print(f"survived: {key}", flush=True)
            if at % 25 == 0:
                print(f"{at} of {len(drawn)}, {len(survivors)} survivors", file=sys.stderr, flush=True)
    skipped = sum(key in known for _, key, _ in drawn)
    print(f"mutants {len(drawn)} of {total}, survivors {len(survivors)}, accepted {skipped}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
