#!/bin/sh
# In the last, smaller batch accelerate's gather_for_metrics cuts every tensor to the number of the batch's rows, also
# with one process. Of 8 rewards for each of 2 prompts it returns 2 of 16; gather returns all.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check accelerate==1.15.0 torch==2.13.0 numpy==2.4.6 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import torch
from accelerate import Accelerator

print(*(f"{name} {version(name)}" for name in ["accelerate", "torch"]), sep=", ")
print("expected: with one process nothing is a duplicate, so all 16 rewards of the last batch come back")

accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 1
loader = accelerator.prepare(torch.utils.data.DataLoader(range(10), batch_size=4))
seen = []
for prompts in loader:
    rewards = prompts.repeat_interleave(8).float()
    seen.append((len(rewards), len(accelerator.gather_for_metrics(rewards)), len(accelerator.gather(rewards))))
print("seen, rewards, gather_for_metrics, gather of each batch:", seen)
assert seen == [(32, 32, 32), (32, 32, 32), (16, 2, 16)]
PROGRAM
