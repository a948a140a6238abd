#!/bin/sh
# Where features declare int64 or bool, datasets cuts floats without a word in from_dict, from_list and
# from_generator: 0.9 is 0, and 0.5 is True. from_pandas and cast_column raise for the same values.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6 || exit 2
HF_HOME="$folder/cache" HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import pandas as pd
from datasets import Dataset, Features, Value

print(*(f"{name} {version(name)}" for name in ["datasets", "pyarrow"]), sep=", ")
print("expected: an error wherever a value does not fit the declared type, as in from_pandas and cast_column")

whole, flag = Features({"reward": Value("int64")}), Features({"reward": Value("bool")})
rows = [{"reward": 0.9}, {"reward": 1.0}]
seen = {
    "from_dict": Dataset.from_dict({"reward": [0.9, 1.0]}, features=whole),
    "from_list": Dataset.from_list(rows, features=whole),
    "from_generator": Dataset.from_generator(lambda: iter(rows), features=whole),
}
print("seen: 0.9 and 1.0 as int64:", {name: data["reward"][:] for name, data in seen.items()})
assert all(data["reward"][:] == [0, 1] for data in seen.values())
flags = Dataset.from_list([{"reward": 0.5}, {"reward": 0.0}], features=flag)["reward"][:]
print("seen: 0.5 and 0.0 as bool:", flags)
assert flags == [True, False]
for strict in (
    lambda: Dataset.from_pandas(pd.DataFrame(rows), features=whole),
    lambda: Dataset.from_list(rows).cast_column("reward", Value("int64")),
):
    try:
        strict()
    except ValueError as error:
        print("seen:", error)
    else:
        raise SystemExit("from_pandas or cast_column raises no more")
PROGRAM
