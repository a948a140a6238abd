#!/bin/sh
# OR-Tools' CP-SAT stops at an absolute gap of 0.0001 and says OPTIMAL. With gains of a few millionths it allocates
# nothing. With absolute_gap_limit = 0 the same model is solved.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check ortools==9.15.6755 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

from ortools.sat.python import cp_model

print(*(f"{name} {version(name)}" for name in ["ortools"]), sep=", ")
print("expected: OPTIMAL means the optimum, up to rounding: all three rollouts on the third prompt")


def allocation(scale, **parameters):
    model = cp_model.CpModel()
    rollouts = [model.new_int_var(0, 3, f"prompt {i}") for i in range(3)]
    model.add(sum(rollouts) <= 3)
    model.maximize(sum(scale * gain * n for gain, n in zip([1, 2, 3], rollouts)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    status = solver.status_name(solver.solve(model))
    return status, [solver.value(n) for n in rollouts], solver.objective_value, solver.best_objective_bound


default, exact, scaled = allocation(1e-6), allocation(1e-6, absolute_gap_limit=0.0), allocation(1.0)
print("seen, gains 0.000001 to 0.000003:", default)
print("seen, the same with absolute_gap_limit = 0:", exact)
print("seen, gains 1 to 3:", scaled)
assert default[:3] == ("OPTIMAL", [0, 0, 0], 0.0) and default[3] > 9e-6
assert exact[:2] == scaled[:2] == ("OPTIMAL", [0, 0, 3])
PROGRAM
