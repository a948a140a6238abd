#!/bin/sh
# In highspy, == between two variables makes a constraint, and that constraint is true. So `in`, index, count and
# remove on a list of variables find the first variable, whichever is asked for, and a chain such as a == b == 3 keeps
# its last part only. The chain a <= b <= 3 raises.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check highspy==1.16.0 numpy==2.4.6 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import highspy

print(*(f"{name} {version(name)}" for name in ["highspy"]), sep=", ")
print("expected: index finds the variable itself, as in a dict; a chain of == that cannot be kept raises, as <= does")

model = highspy.Highs()
model.silent()
first, second, third = rollouts = [model.addVariable(0, 5) for _ in range(3)]
print("seen: index of the third is", rollouts.index(third), "- third in [first, second] is", third in [first, second])
assert rollouts.index(third) == 0
assert third in [first, second]
assert rollouts.count(third) == 3
assert {first: 0, second: 1, third: 2}[third] == 2, "a dict asks for identity first"

try:
    model.addConstr(first <= second <= 3)
    raise SystemExit("a chain of <= is no error any more")
except Exception as error:
    print("seen: first <= second <= 3 raises", repr(str(error)))
model.addConstr(first == second == 3)
model.maximize(first + second)
print("seen: with first == second == 3 the first is", model.val(first), "and the second", model.val(second))
assert (model.val(first), model.val(second)) == (5.0, 3.0)
PROGRAM
