#!/bin/sh
# datasets takes a mask of booleans for row numbers: True is row 1, False is row 0. With numpy's mask, select and
# square brackets return as many rows as before, and other ones.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6 || exit 2
HF_HOME="$folder/cache" HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import numpy as np
from datasets import Dataset

print(*(f"{name} {version(name)}" for name in ["datasets", "numpy"]), sep=", ")
print("expected: the rows where the mask is true, as in numpy and pandas, or an error")

rollouts = Dataset.from_dict({"rollout": ["a", "b", "c", "d"], "reward": [0.0, 0.0, 1.0, 1.0]})
solved = np.array(rollouts["reward"]) == 1
print("seen: mask", solved.tolist(), "selects", rollouts.select(solved)["rollout"][:])
assert rollouts.select(solved)["rollout"][:] == ["a", "a", "b", "b"]
assert rollouts[solved]["rollout"] == rollouts[solved.tolist()]["rollout"] == ["a", "a", "b", "b"]
assert rollouts.select(np.flatnonzero(solved))["rollout"][:] == ["c", "d"]
try:
    rollouts.select(solved.tolist())
    raise SystemExit("select of a list of booleans is no error any more")
except Exception as error:
    print("seen: select of the same mask as a list raises", type(error).__name__)
PROGRAM
