"""The README's section on the parts runs as it stands, with a real trainer."""

import doctest
import re
from pathlib import Path

import numpy as np

import budgetalloc as ba
from budgetalloc.training.policy_like import resolve_policy

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_parts_run_as_the_readme_prints_them(build):
    shown = README[README.index("## The parts") : README.index("## Read on")]
    names = {"trainer": build(max_steps=1)}
    test = doctest.DocTestParser().get_doctest(shown, names, "README", "README.md", 0)
    assert len(test.examples) == 8
    ran = doctest.DocTestRunner().run(test, clear_globs=False)
    assert ran.failed == 0
    names["trainer"].train()
    batch = names["trainer"].callback_handler.callbacks[-1].batch
    assert np.bincount(batch.group_R).sum() == 16
    assert test.globs["solved"].estimator.step == 1


def test_a_policy_of_ones_own_is_trained_as_the_page_says(build, tmp_path, monkeypatch):
    """The first block of docs/own.md, as mine.py and as code, and the last; tests/docs runs those between them."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/own.md").read_text(encoding="utf-8")
    rule, *_, training = re.findall(r"^```py(?:thon)?\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = {"trainer": build(max_steps=1)}
    exec(rule + training, names)
    assert len(ba.Ledger.read("run/ledger.jsonl")) == 16
    Path("mine.py").write_text(rule)
    trained = names["trainer"].callback_handler.callbacks[-1].policy
    assert trained.name == resolve_policy("mine.py:thirds").name
