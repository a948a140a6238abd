#!/bin/sh
# reasoning-gym makes item i of seed s from s + i. So seed 1 is seed 0 moved by one item: a held-out set with the next
# seed lies in the training set.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check reasoning-gym==0.1.25 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import reasoning_gym

print(*(f"{name} {version(name)}" for name in ["reasoning_gym"]), sep=", ")
print("expected: data sets with different seeds share hardly a question")


def questions(task, seed, size=100):
    data = reasoning_gym.create_dataset(task, size=size, seed=seed)
    return [data[i]["question"] for i in range(size)]


for task in ["basic_arithmetic", "gcd", "knights_knaves"]:
    train, next_seed, far = questions(task, 0), questions(task, 1), questions(task, 1_000_000)
    shared = [len(set(train) & set(other)) for other in (next_seed, far)]
    print("seen,", task, "of 100 questions in seed 0:", shared[0], "of seed 1,", shared[1], "of seed 1,000,000")
    assert next_seed[:-1] == train[1:]
    assert shared[0] >= 99 and shared[1] <= 5
PROGRAM
