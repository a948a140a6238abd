#!/bin/sh
# Dataset.to_json writes 10 decimals: 1e-12 is 0.0, the float32 0.1 is another number, and infinity is null.
# Dataset.to_csv and parquet keep them.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6 || exit 2
HF_HOME="$folder/cache" HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import json

from datasets import Dataset, Features, Value

print(*(f"{name} {version(name)}" for name in ["datasets", "pandas"]), sep=", ")
print("expected: every finite number as it was, as json.dumps and to_csv write them")

numbers = [1e-12, 1 / 3, -27.631021115928547, float("inf")]
data = Dataset.from_dict({"ratio": numbers}, features=Features({"ratio": Value("float64")}))
data.to_json("ratios.jsonl")
data.to_csv("ratios.csv")
with open("ratios.jsonl") as lines:
    seen = [json.loads(line)["ratio"] for line in lines]
with open("ratios.csv") as lines:
    exact = [float(line) for line in lines.read().split()[1:]]
print("seen, to_json:", seen)
print("seen, to_csv:", exact)
assert seen == [0.0, 0.3333333333, -27.6310211159, None]
assert exact == numbers
PROGRAM
