"""What CONTRIBUTING.md tells is so."""

import os
import re
import sys
import textwrap
from pathlib import Path

import pytest

import budgetalloc as ba
from budgetalloc import testing

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


def example(first_line: str) -> str:
    """The indented block that begins with this line."""
    start = TEXT.index(f"    {first_line}")
    lines = []
    for line in TEXT[start:].splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line)
    return textwrap.dedent("\n".join(lines)).strip()


@pytest.fixture(scope="module")
def relapse():
    names = {}
    exec(example("import numpy as np\n    import budgetalloc as ba\n    from budgetalloc.beliefs.memory"), names)
    return names["relapse"]


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_the_worked_example_keeps_the_rules(relapse, check):
    check(relapse)


def test_the_worked_example_remembers_failures(relapse):
    policy = relapse(weight=1e6, seed=0)
    policy.observe(["failed"] * 8 + ["half"] * 8, [0] * 8 + [0, 1] * 4)
    assert policy.allocate(["failed", "half"], ba.Budget(rollouts=16, floor=0)).tolist() == [16, 0]


def test_the_decision_in_rounds_runs():
    names = {}
    exec("import numpy as np\nimport budgetalloc as ba\n" + example("def twice(view):"), names)
    step = names["policy"].begin(["a", "b"], ba.Budget(rollouts=8, floor=0))
    assert step.request().tolist() == [2, 2]
    step.observe(["a", "a", "b", "b"], [1, 0, 1, 1])
    assert step.request().tolist() == [2, 0]


def test_one_reward_goes_the_way_that_the_page_tells(tmp_path):
    text = TEXT.partition("## The way of one reward")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\S+)` \| `(\S+)` \|", text, re.MULTILINE)
    folder, entered = f"{Path(ba.__file__).parent}{os.sep}", []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            entered.append((frame.f_code.co_filename.removeprefix(folder), frame.f_code.co_qualname))

    session = ba.Session(ba.adaptive(), ["reward"], pool=["q1", "q2"], ledger=tmp_path / "ledger.jsonl", quiet=True)
    for watcher in (None, note):  # the second step, in which all prompts are known
        before = sys.getprofile()
        sys.setprofile(watcher)
        try:
            session.begin([], rollouts=2, group=8)
            while ids_R := session.request():
                session.observe(ids_R, [0.0, 1.0], lengths_R=[5, 5])
            session.end()
        finally:
            sys.setprofile(before)
    assert len(told) > 15
    assert [each for each in dict.fromkeys(entered) if each in told] == told
