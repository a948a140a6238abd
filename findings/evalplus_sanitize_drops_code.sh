#!/bin/sh
# evalplus' sanitize, which cleans answers before they are graded, keeps functions, classes, imports and simple
# assignments only. A decorated function, `a, b = 1, 2` at the top or a loop that fills a table is dropped, and a
# right program fails.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check evalplus==0.3.1 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

from evalplus.sanitize import sanitize

print(*(f"{name} {version(name)}" for name in ["evalplus"]), sep=", ")
print("expected: text around the code goes, and each of the three programs still returns 3 for solve(2)")

ANSWERS = {
    "a decorated function": "from functools import cache\n\n@cache\ndef solve(n):\n    return n + 1\n",
    "two names at once": "one, two = 1, 2\n\ndef solve(n):\n    return n + one\n",
    "a table": "table = {}\nfor i in range(9):\n    table[i] = i + 1\n\ndef solve(n):\n    return table[n]\n",
    "a plain one": "one = 1\n\ndef solve(n):\n    return n + one\n",
}


def outcome(program):
    names = {}
    try:
        exec(program, names)
        return names["solve"](2)
    except (KeyError, NameError) as error:
        return type(error).__name__


seen = {}
for name, program in ANSWERS.items():
    assert outcome(program) == 3
    seen[name] = outcome(sanitize(f"Here it is:\n```python\n{program}```\n", entrypoint="solve"))
print("seen:", seen)
assert seen["a plain one"] == 3
assert (seen["a decorated function"], seen["two names at once"], seen["a table"]) == ("KeyError", "NameError", "KeyError")
PROGRAM
