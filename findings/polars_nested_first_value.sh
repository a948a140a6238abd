#!/bin/sh
# In polars the first value of a column of lists or structs decides what is in it: in [[0], [0.75]] the second list
# becomes [0], and a key that the first dict lacks is dropped. A list in one piece, [0, 0.75], raises.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import polars as pl

print(*(f"{name} {version(name)}" for name in ["polars"]), sep=", ")
print("expected: the type fits all rows, or an error; strict is on by default")

rewards = pl.Series([[0, 1], [0.75, 0.5]]).to_list()
print("seen: rewards of two groups:", rewards)
assert rewards == [[0, 1], [0, 0]]
assert pl.DataFrame({"rewards": [[0, 1], [0.75, 0.5]]})["rewards"].to_list() == rewards
assert pl.Series([[0.75, 0.5], [0, 1]]).to_list() == [[0.75, 0.5], [0.0, 1.0]], "the other order keeps all"
try:
    pl.Series([[0, 0.75]])
    raise SystemExit("a list of integers and floats is no error any more")
except TypeError:
    print("seen: both kinds in one list are a TypeError")

parts = pl.Series([{"format": 1.0}, {"format": 1.0, "correct": 1.0}]).to_list()
print("seen: rewards by function of two rollouts:", parts)
assert parts == [{"format": 1.0}, {"format": 1.0}]
PROGRAM
