"""verl imports the plugin in every process: it must be light, and must not break a verl that it does not fit."""

import subprocess
import sys

import pytest

CODE = """
import logging, sys, budgetalloc.verl.plugin as plugin
logging.basicConfig(format="%(message)s")
assert "torch" not in sys.modules
import types
{more}
"""


def run(more):
    code = CODE.format(more=more)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_it_imports_neither_torch_nor_verl_and_looks_at_no_other_module():
    done = run('import json.tool\nassert not [name for name in sys.modules if name.split(".")[0] == "verl"]')
    assert done.stderr == ""


@pytest.mark.slow
def test_a_verl_that_does_not_fit_goes_on_and_a_warning_says_why(tmp_path):
    package = tmp_path / "verl" / "trainer" / "ppo" / "v1"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:3]):
        (folder / "__init__.py").write_text("")
    (tmp_path / "verl" / "__init__.py").write_text('__version__ = "0.7.0"')
    done = run(f"sys.path.insert(0, {str(tmp_path)!r})\nimport verl.trainer.ppo.v1 as v1\nassert v1.__name__")
    assert "verl 0.7.0 has no trainer_mode=budgetalloc (ModuleNotFoundError: No module named" in done.stderr
    assert "Install verl 0.9.1" in done.stderr
