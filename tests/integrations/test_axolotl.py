"""The plugin in runs of axolotl's command line, which trains a tiny model on the CPU.

Runs in the environment that `make trainers` makes, and skips elsewhere.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("axolotl")
pytestmark = pytest.mark.slow

from safetensors.torch import load_file  # noqa: E402
from tiny_model import fresh_model, make_tokenizer, rows  # noqa: E402
from torch import equal  # noqa: E402

import budgetalloc as ba  # noqa: E402

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "integrations/axolotl/grpo.yaml"
TRL = {"num_generations": 4, "max_completion_length": 4, "reward_funcs": ["tiny_model.low_digit"]}
TINY = {
    "base_model": "model",
    "sequence_len": 32,
    "trl": TRL,
    "micro_batch_size": 16,
    "learning_rate": 0.01,
    "max_steps": 4,
    "save_steps": 2,
    "bf16": False,
    "use_cpu": True,
}
OFFLINE = {"AXOLOTL_DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT / "tests/trl")}


def start(folder, **changed):
    """axolotl in a folder with a model and prompts; the recipe's settings, but for these."""
    folder.mkdir()
    fresh_model().save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    rows().to_json(folder / "train.jsonl")
    settings = yaml.safe_load(RECIPE.read_text()) | TINY | changed
    (folder / "grpo.yaml").write_text(yaml.safe_dump({key: x for key, x in settings.items() if x is not None}))
    command = [Path(sys.executable).with_name("axolotl"), "train", "grpo.yaml", "--launcher", "python"]
    log = (folder / "log").open("w")
    return folder, subprocess.Popen(command, cwd=folder, env=os.environ | OFFLINE, stdout=log, stderr=log)


def ended(run):
    """The status and the output of a run."""
    folder, process = run
    status = process.wait()
    return status, (folder / "log").read_text()


def weights(run):
    status, text = ended(run)
    assert status == 0, text[-4000:]
    return load_file(run[0] / "runs/axolotl/model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two at a time."""
    folder, started = tmp_path_factory.mktemp("axolotl"), {}
    ledger = {"ledger": "runs/axolotl/ledger.jsonl"}
    for pair in (
        {
            "plain": {"plugins": None, "budgetalloc": None},
            "uniform": {"budgetalloc": {"policy": "uniform"} | ledger},
        },
        {
            "adaptive": {},
            "refused": {"trl": TRL | {"async_prefetch": True}},
        },
    ):
        started |= {name: start(folder / name, **changed) for name, changed in pair.items()}
        for name in pair:
            ended(started[name])
    return started


def test_uniform_trains_as_axolotl_without_the_plugin(runs):
    assert same(weights(runs["uniform"]), weights(runs["plain"]))


def test_group_sizes_vary_and_the_ledger_has_every_rollout(runs):
    weights(runs["adaptive"])
    frame = ba.Ledger.read(runs["adaptive"][0] / "runs/axolotl/ledger.jsonl").frame
    assert frame.groupby("step").size().to_dict() == dict.fromkeys(range(4), 16)
    assert frame.groupby(["step", "prompt"]).size().nunique() > 1
    uniform = ba.Ledger.read(runs["uniform"][0] / "runs/axolotl/ledger.jsonl").frame
    assert set(uniform.groupby(["step", "prompt"]).size()) == {4}


def test_a_resumed_run_equals_an_uninterrupted_one(runs, tmp_path):
    checkpoint = runs["adaptive"][0] / "runs/axolotl/checkpoint-2"
    assert (checkpoint / "budgetalloc_state.npz").exists()
    resumed = start(tmp_path / "resumed", resume_from_checkpoint=str(checkpoint))
    assert same(weights(resumed), weights(runs["adaptive"]))


def test_the_asynchronous_producer_is_refused(runs):
    status, text = ended(runs["refused"])
    assert status != 0
    assert "UnsupportedError: budgetalloc.axolotl.Plugin does not work with trl.async_prefetch" in text
