#!/bin/sh
# Through OR-Tools' model_builder HiGHS stops within its relative gap of 0.0001, and best_objective_bound is then the
# value that it found, below the true maximum. SCIP and all 4,096 choices give the maximum.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check ortools==9.15.6755 numpy==2.4.6 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import itertools

import numpy as np
from ortools.linear_solver.python import model_builder

print(*(f"{name} {version(name)}" for name in ["ortools", "numpy"]), sep=", ")
print("expected: of a maximum, best_objective_bound is at least the optimum; it says how far a value may be from it")

rng = np.random.default_rng(0)
cost = rng.integers(100, 300, 12)
worth = cost + rng.integers(0, 5, 12) * 0.02
budget = int(cost.sum() // 2)


def solved(name):
    model = model_builder.Model()
    chosen = [model.new_int_var(0, 1, f"prompt {i}") for i in range(12)]
    model.add(sum(int(c) * n for c, n in zip(cost, chosen)) <= budget)
    model.maximize(sum(float(w) * n for w, n in zip(worth, chosen)))
    solver = model_builder.Solver(name)
    return solver.solve(model).name, round(solver.objective_value, 6), round(solver.best_objective_bound, 6)


every = np.array(list(itertools.product([0, 1], repeat=12)))
optimum = round(float((every @ worth)[every @ cost <= budget].max()), 6)
highs, scip = solved("highs"), solved("scip")
print("seen, optimum by enumeration:", optimum)
print("seen, HiGHS, value and bound:", highs)
print("seen, SCIP, value and bound:", scip)
assert scip == ("OPTIMAL", optimum, optimum)
assert highs[0] == "OPTIMAL" and highs[1] == highs[2] < optimum
PROGRAM
