#!/bin/sh
# math-verify reads a number with a thin space between its thousands as a sum or a product of its parts: 12\,345 is 12
# + 345, and 10\,000 is 10 times 0. Many countries and most journals write numbers so.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check math-verify==0.9.0 latex2sympy2-extended==1.11.0 sympy==1.14.0 antlr4-python3-runtime==4.13.2 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

from math_verify import parse, verify

print(*(f"{name} {version(name)}" for name in ["math-verify", "latex2sympy2-extended", "sympy"]), sep=", ")
print(r"expected: $12\,345$ is the number 12345, as $12{,}345$ and $12,345$ are")

print("seen:", {text: parse(text)[0] for text in (r"$12{,}345$", r"$12,345$", r"$12\,345$", r"$10\,000$")})
assert verify(parse("$12345$"), parse("$12,345$"))
assert not verify(parse("$12345$"), parse(r"$12\,345$"))
assert verify(parse("$357$"), parse(r"$12\,345$")), "12 + 345"
assert not verify(parse("$10000$"), parse(r"$10\,000$"))
assert verify(parse("$0$"), parse(r"$10\,000$")), "10 times 0"
assert not verify(parse("$12345$"), parse(r"\boxed{12\,345}"))
PROGRAM
