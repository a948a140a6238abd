"""The methods of TRL that the callback uses. A version that lacks or moves one of them is refused by name."""

import inspect
from functools import partial
from pathlib import Path

import pytest
import trl
from conftest import SAVES, trained
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.trl.compatibility import SEAM

# What the callback passes by position or by name.
PARAMETERS = {
    "train": ["resume_from_checkpoint", "trial"],
    "_generate_and_score_completions": ["inputs"],
    "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
    "_save_checkpoint": ["model", "trial"],
    "_load_optimizer_and_scheduler": ["checkpoint"],
    "_get_output_dir": ["trial"],
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_methods_take_the_parameters_that_are_passed(name):
    parameters = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)[1:]
    assert parameters[: len(PARAMETERS[name])] == PARAMETERS[name], f"TRL {trl.__version__} changed GRPOTrainer.{name}"
    if name in ("_generate_and_score_completions", "_calculate_rewards"):  # ours take these and no more
        assert parameters == PARAMETERS[name]


def test_every_method_of_the_seam_is_listed():
    assert {name for name in SEAM if inspect.isfunction(getattr(GRPOTrainer, name, None))} <= set(PARAMETERS)


def elsewhere(method, hidden):
    """`GRPOTrainer.method` of a TRL that does not call the trainer's `hidden`, but its class's."""
    own = getattr(GRPOTrainer, method)

    def without(self, *args):
        setattr(self, hidden, partial(getattr(GRPOTrainer, hidden), self))
        try:
            return own(self, *args)
        finally:
            delattr(self, hidden)

    return without


def test_a_trl_that_generates_elsewhere_is_refused(build, monkeypatch):
    """Its method still exists, but is not called on the trainer, so training would continue without the policy."""
    generate = "_generate_and_score_completions"
    monkeypatch.setattr(GRPOTrainer, "_prepare_inputs", elsewhere("_prepare_inputs", generate))
    trainer = build(steps_per_generation=2, per_device_train_batch_size=8)
    message = rf"TRL {trl.__version__} trained 2 steps without calling GRPOTrainer.{generate}"
    with pytest.raises(ba.UnsupportedError, match=message):
        trained(trainer)
    assert generate not in vars(trainer)


def test_a_trl_that_scores_elsewhere_is_refused(build, monkeypatch):
    generate = "_generate_and_score_completions"
    monkeypatch.setattr(GRPOTrainer, generate, elsewhere(generate, "_calculate_rewards"))
    with pytest.raises(RuntimeError, match="TRL did not call _calculate_rewards"):
        trained(build())


def test_the_beliefs_are_written_first_and_transformers_state_last(build):
    """So a folder with a trainer_state.json is a complete checkpoint, with the beliefs."""
    trainer = build(max_steps=1, **SAVES)
    present = []
    save = trainer._save_checkpoint

    def save_and_look(model, trial):
        folder = Path(trainer.args.output_dir) / "checkpoint-1"
        present.extend(path.name for path in folder.iterdir())
        return save(model, trial)

    trainer._save_checkpoint = save_and_look
    trained(trainer)
    assert present == [STATE_FILE]
    written = {p.name: p.stat().st_mtime_ns for p in (Path(trainer.args.output_dir) / "checkpoint-1").iterdir()}
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"} <= set(written)
    assert written["trainer_state.json"] == max(written.values())
