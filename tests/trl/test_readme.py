"""The README's section on the parts runs as it stands, with a real trainer."""

import doctest
from pathlib import Path

import numpy as np

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_parts_run_as_the_readme_prints_them(build):
    shown = README[README.index("## The parts") : README.index("## Read on")]
    names = {"trainer": build(max_steps=1)}
    test = doctest.DocTestParser().get_doctest(shown, names, "README", "README.md", 0)
    assert len(test.examples) > 8
    ran = doctest.DocTestRunner().run(test, clear_globs=False)
    assert ran.failed == 0
    names["trainer"].train()
    batch = names["trainer"].callback_handler.callbacks[-1].batch
    assert np.bincount(batch.group_R).sum() == 16
    assert test.globs["policy"].estimator.step == 2  # the log's and the training's
