#!/bin/sh
# OR-Tools' model_builder takes x != y for two variables as a constraint that always holds. CP-SAT enforces it,
# pywraplp and mathopt refuse it, and model_builder itself refuses x != 2.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check ortools==9.15.6755 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

from ortools.linear_solver.python import model_builder
from ortools.sat.python import cp_model

print(*(f"{name} {version(name)}" for name in ["ortools"]), sep=", ")
print("expected: x and y differ, as in CP-SAT, or an error, as for x != 2")

exact = cp_model.CpModel()
x, y = exact.new_int_var(0, 3, "x"), exact.new_int_var(0, 3, "y")
exact.add(x != y)
exact.maximize(x + y)
cp = cp_model.CpSolver()
assert cp.solve(exact) == cp_model.OPTIMAL
print("seen, CP-SAT: x + y =", cp.value(x) + cp.value(y))
assert cp.value(x) + cp.value(y) == 5

model = model_builder.Model()
x, y = model.new_int_var(0, 3, "x"), model.new_int_var(0, 3, "y")
model.add(x != y)
model.maximize(x + y)
solver = model_builder.Solver("scip")
status = solver.solve(model)
print("seen, model_builder:", status.name, "x =", solver.value(x), "y =", solver.value(y))
assert (status.name, solver.value(x), solver.value(y)) == ("OPTIMAL", 3.0, 3.0)
try:
    model.add(x != 2)
except NotImplementedError as error:
    print("seen, model_builder, x != 2:", type(error).__name__)
else:
    raise AssertionError("x != 2 is taken")
PROGRAM
