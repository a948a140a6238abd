#!/bin/sh
# In datasets' numpy format, a column of integers with one None comes back as float32, and ids above 2**24 collide.
# Without the None they are exact, and so are they row by row.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6 || exit 2
HF_HOME="$folder/cache" HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

from datasets import Dataset

print(*(f"{name} {version(name)}" for name in ["datasets", "numpy", "pyarrow"]), sep=", ")
print("expected: float64, as pandas makes of such a column, where integers are exact up to 2**53")

ids = [20_000_001, 20_000_000, 19_999_999, None]
data = Dataset.from_dict({"id": ids}).with_format("numpy")
column = data["id"][:]
print("seen:", column.dtype, [int(i) for i in column[:3]], "for", ids[:3])
assert column.dtype == "float32"
assert column[:3].tolist() == [20_000_000.0] * 3
assert [int(row["id"]) for row in data.select(range(3))] == ids[:3]
assert Dataset.from_dict({"id": ids[:3]}).with_format("numpy")["id"][:].tolist() == ids[:3]
assert Dataset.from_dict({"id": ids}).to_pandas()["id"].tolist()[:3] == ids[:3]
PROGRAM
