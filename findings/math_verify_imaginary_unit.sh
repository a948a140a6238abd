#!/bin/sh
# math-verify reads i as a letter like x. Answers with complex numbers count as equal only while no rule of i is
# needed: the square of i is not -1.
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
print("expected: i is the imaginary unit, as e and pi are numbers")

pairs = [("$-1$", "$i^2$"), ("$2$", "$(1+i)(1-i)$"), ("$2i$", r"$\sqrt{-4}$"), ("$-1$", r"$e^{i\pi}$")]
print("seen:", {pair: verify(parse(pair[0]), parse(pair[1])) for pair in pairs})
assert not any(verify(parse(gold), parse(answer)) for gold, answer in pairs)
assert verify(parse("$2+3i$"), parse("$3i+2$"))
assert verify(parse("$e$"), parse("$2.718282$"))
assert verify(parse(r"$\pi$"), parse("$3.141593$"))
PROGRAM
