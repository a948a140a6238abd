#!/bin/sh
# polars takes a column's type from the first 100 rows where it is given rows. If those hold whole numbers, a later
# 0.75 becomes 0. After 100 booleans, 0.25 becomes false. There is no error, though strict is on.
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
print("expected: strict=True, the default, raises where a value does not fit, as it does for columns")

rows = [{"prompt": i, "reward": 0} for i in range(100)] + [{"prompt": 100, "reward": 0.75}]
frames = {"DataFrame(rows)": pl.DataFrame(rows), "from_dicts(rows)": pl.from_dicts(rows, strict=True)}
print("seen: sum of the rewards:", {name: frame["reward"].sum() for name, frame in frames.items()})
assert all(frame["reward"].sum() == 0 for frame in frames.values())
assert pl.DataFrame(rows[1:])["reward"].sum() == 0.75, "with 99 rows before it, it is seen"
assert pl.DataFrame(rows, infer_schema_length=None)["reward"].sum() == 0.75
try:
    pl.DataFrame({"reward": [row["reward"] for row in rows]})
    raise SystemExit("the same values as a column are no error any more")
except TypeError:
    print("seen: the same values as a column are a TypeError")

passed = pl.DataFrame([{"passed": True}] * 100 + [{"passed": 0.25}])["passed"].to_list()
print("seen: 0.25 after 100 booleans is", passed[-1])
assert passed[-1] is False
PROGRAM
