#!/bin/sh
# In datasets, from_list keeps the columns of the first row only. map and from_generator keep those of the first 1000
# rows. What appears later is dropped without a word; a key that appears within those rows is an error in map.
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

print(*(f"{name} {version(name)}" for name in ["datasets"]), sep=", ")
print("expected: None where a row lacks a column, or an error")

rows = [{"prompt": "a"}, {"prompt": "b", "reward": 1.0}]
print("seen: from_list:", Dataset.from_list(rows)[:])
assert Dataset.from_list(rows).column_names == ["prompt"]
assert Dataset.from_list(rows[::-1])[:] == {"prompt": ["b", "a"], "reward": [1.0, None]}


def scored(first):
    def score(row):
        return {"reward": 1.0} if row["prompt"] >= first else {}

    return Dataset.from_dict({"prompt": list(range(2000))}).map(score).column_names


print("seen: map, where the rows from 1500 on return a reward:", scored(1500))
assert scored(1500) == ["prompt"]
assert scored(0) == ["prompt", "reward"]
try:
    scored(500)
    raise SystemExit("map with a column from row 500 on is no error any more")
except KeyError:
    print("seen: map, where the rows from 500 on return one: KeyError")


def generated():
    for i in range(2000):
        yield {"prompt": i} if i < 1500 else {"prompt": i, "reward": 1.0}


print("seen: from_generator, with a reward from row 1500 on:", Dataset.from_generator(generated).column_names)
assert Dataset.from_generator(generated).column_names == ["prompt"]
PROGRAM
