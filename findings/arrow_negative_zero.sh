#!/bin/sh
# pyarrow holds 0.0 and -0.0 to be equal in a comparison, but counts, groups and joins them as two values. A reward of
# -0.0 arises from a penalty of weight -1 times 0. Through pandas the same columns lose rows.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==3.1.1 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

print(*(f"{name} {version(name)}" for name in ["pyarrow", "pandas"]), sep=", ")
print("expected: equal numbers are one value, as in pandas with numpy's columns")

rewards = [0.0, -1.0 * 0]
column = pa.array(rewards)
table = pa.table({"reward": column, "rollouts": [3, 5]})
grouped = table.group_by("reward").aggregate([("rollouts", "sum")])["rollouts_sum"].to_pylist()
print("seen in pyarrow: equal", pc.equal(*column).as_py(), "- distinct values", len(pc.unique(column)), "- groups", grouped)
assert pc.equal(*column).as_py()
assert len(pc.unique(column)) == 2
assert sorted(grouped) == [3, 5]
assert pc.is_in(column, pa.array([0.0])).to_pylist() == [True, False]

plain, arrow = pd.Series(rewards), pd.Series(rewards, dtype="float64[pyarrow]")
print("seen in pandas, numpy's column:", plain.value_counts().to_dict(), plain.nunique(), plain.isin([0.0]).tolist())
print("seen in pandas, pyarrow's column:", arrow.value_counts().to_dict(), arrow.nunique(), arrow.isin([0.0]).tolist())
assert plain.value_counts().to_dict() == {0.0: 2} and plain.nunique() == 1 and plain.isin([0.0]).all()
assert arrow.value_counts().tolist() == [1, 1] and arrow.nunique() == 2 and arrow.isin([0.0]).tolist() == [True, False]
assert (arrow == 0.0).all()
PROGRAM
