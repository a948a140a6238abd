#!/bin/sh
# math-verify's equality is not transitive: 50 % equals 50, and 50 % equals 0.5, but 50 does not equal 0.5.
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
print("expected: two answers that both equal a third are equal, so answers can be put into classes")

whole, percent, share = parse("$50$"), parse(r"$50\%$"), parse("$0.5$")
seen = [verify(whole, percent), verify(percent, share), verify(whole, share)]
print("seen: 50 = 50 % is {}, 50 % = 0.5 is {}, 50 = 0.5 is {}".format(*seen))
assert seen == [True, True, False]

# Answers sorted into classes by comparison with each class's first: the order decides how many there are.
def classes(answers):
    found = []
    for answer in answers:
        for members in found:
            if verify(members[0], answer):
                members.append(answer)
                break
        else:
            found.append([answer])
    return len(found)

print("seen: classes of three answers, in two orders:", classes([percent, whole, share]), classes([whole, share, percent]))
assert classes([percent, whole, share]) == 1
assert classes([whole, share, percent]) == 2
PROGRAM
