"""The places of TRL that the callback stands at: a version that moves one of them is refused by name, never used."""

import inspect
from pathlib import Path

import pytest
import trl
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.checks import SEAM

# What the callback passes by position or by name.
PARAMETERS = {
    "train": ["resume_from_checkpoint", "trial"],
    "_generate_and_score_completions": ["inputs"],
    "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
    "_get_per_token_logps_and_entropies": ["model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"],
    "_save_checkpoint": ["model", "trial"],
    "_load_optimizer_and_scheduler": ["checkpoint"],
    "_get_output_dir": ["trial"],
}
# TRL 1.14 takes the log-probabilities there, and hands on what it is given.
HANDED_ON = {"_get_per_token_logps_and_entropies": "_full_logits_logps"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_methods_take_the_parameters_that_are_passed(name):
    parameters = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)[1:]
    if "args" in parameters and hasattr(GRPOTrainer, HANDED_ON.get(name, "")):
        parameters = list(inspect.signature(getattr(GRPOTrainer, HANDED_ON[name])).parameters)[1:]
    assert parameters[: len(PARAMETERS[name])] == PARAMETERS[name], f"TRL {trl.__version__} changed GRPOTrainer.{name}"
    if name in ("_generate_and_score_completions", "_calculate_rewards"):  # ours take these and no more
        assert parameters == PARAMETERS[name]


def test_every_method_is_listed():
    assert {name for name in SEAM if inspect.isfunction(getattr(GRPOTrainer, name, None))} <= set(PARAMETERS)


def test_the_trainer_has_the_seam(build):
    trainer = build()
    missing = [name for name in SEAM if not hasattr(trainer, name)]
    assert not missing, f"TRL {trl.__version__} has no GRPOTrainer.{missing[0]}"


def test_a_trl_that_generates_elsewhere_is_refused(build, monkeypatch):
    """Its method is still there, but nobody asks the trainer for it: training would go on without the policy."""
    own = GRPOTrainer._generate_and_score_completions

    def elsewhere(self, inputs):
        held = vars(self).pop("_generate_and_score_completions", None)
        try:
            return prepare(self, inputs)
        finally:
            if held is not None:
                self._generate_and_score_completions = held

    prepare = GRPOTrainer._prepare_inputs
    monkeypatch.setattr(GRPOTrainer, "_prepare_inputs", elsewhere)
    trainer = build(steps_per_generation=2, per_device_train_batch_size=8)
    trainer.add_callback(AdaptiveGRPOCallback(trainer))
    message = rf"TRL {trl.__version__} trained 2 steps without calling GRPOTrainer._generate_and_score_completions"
    with pytest.raises(ba.UnsupportedError, match=message):
        trainer.train()
    assert trainer._generate_and_score_completions.__func__ is own


def test_a_trl_that_scores_elsewhere_is_refused(build, monkeypatch):
    generate = GRPOTrainer._generate_and_score_completions

    def elsewhere(self, inputs):
        held = vars(self).pop("_calculate_rewards", None)
        try:
            return generate(self, inputs)
        finally:
            if held is not None:
                self._calculate_rewards = held

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", elsewhere)
    trainer = build()
    trainer.add_callback(AdaptiveGRPOCallback(trainer))
    with pytest.raises(RuntimeError, match="TRL did not call _calculate_rewards"):
        trainer.train()


def test_transformers_writes_its_own_state_last_and_ours_is_there_before(build):
    """What makes a folder with a trainer_state.json a whole checkpoint, beliefs and all."""
    trainer = build(max_steps=1, save_strategy="steps", save_steps=1)
    present = []
    save = trainer._save_checkpoint

    def save_and_look(model, trial):
        folder = Path(trainer.args.output_dir) / "checkpoint-1"
        present.extend(path.name for path in folder.iterdir())
        return save(model, trial)

    trainer._save_checkpoint = save_and_look
    trainer.add_callback(AdaptiveGRPOCallback(trainer))
    trainer.train()
    assert present == [STATE_FILE]
    written = {p.name: p.stat().st_mtime_ns for p in (Path(trainer.args.output_dir) / "checkpoint-1").iterdir()}
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"} <= set(written)
    assert written["trainer_state.json"] == max(written.values())
