"""Checkpoints hold the beliefs, and only states that fit are loaded. Runs with kills: test_faults.py."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import rows, trained
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.training.belief_checkpoint import STATE_FILE


@pytest.fixture
def saved(build):
    """The callback of a run with checkpoints."""
    return trained(build(save_strategy="steps", save_steps=2))


@pytest.fixture
def state_file(saved):
    """The state in its last checkpoint."""
    return Path(saved.trainer.args.output_dir) / "checkpoint-4" / STATE_FILE


def resume(build, data=None, **options):
    return trained(build(data, max_steps=6), resume=4, **options)


def test_beliefs_of_another_step_of_the_trainer_cause_a_warning(state_file, build, caplog):
    assert resume(build).policy.estimator.step == 6  # continues from the saved beliefs
    assert "belong together" not in caplog.text
    (state_file.parents[1] / "checkpoint-2" / STATE_FILE).replace(state_file)
    resume(build)
    assert "was saved at step 2 of the trainer, and the checkpoint is of step 4" in caplog.text


def test_another_dataset_is_refused_unless_allowed(saved, build):
    with pytest.raises(ba.StateError, match=r"belongs to the train dataset 24-.* has 30-.*allow_dataset_change=True"):
        resume(build, data=rows(30))
    other = Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n + 1} for n in range(24)])
    with pytest.raises(ba.InputError, match=r"prompt_id=\d+ of the train dataset names another prompt"):
        resume(build, data=other)
    assert resume(build, data=rows(30), allow_dataset_change=True).policy.estimator.step == 6


def test_damaged_and_foreign_files_are_refused(saved, state_file, build):
    whole, (state, about) = state_file.read_bytes(), ba.load_state(state_file)
    for content in (whole[: len(whole) // 2], b"", b"something else", pickle.dumps({"meta": 1})):
        state_file.write_bytes(content)
        message = f"checkpoint-4/{STATE_FILE} is damaged or was not written by budgetalloc"
        with pytest.raises(ba.StateError, match=message):
            resume(build)
    np.savez(state_file, weights=np.zeros(3))
    with pytest.raises(ba.StateError, match="was not written by budgetalloc"):
        resume(build)
    ba.save_state(state_file, state | {"beliefs": "of tomorrow"}, about)
    with pytest.raises(ba.StateError, match="of tomorrow"):
        resume(build)


def test_a_checkpoint_without_state_warns_and_starts_cold(state_file, build, caplog):
    state_file.unlink()
    assert resume(build).policy.estimator.step == 2  # the two steps after the checkpoint
    assert "Beliefs start cold" in caplog.text


@pytest.mark.parametrize(("save_steps", "warned"), [(3, True), (4, False), (0.3, False), (0.75, False)])
def test_saves_between_generations_warn(build, caplog, save_steps, warned):
    """Below 1, `save_steps` is a share of the run."""
    config = {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    trained(build(**config, max_steps=1, save_strategy="steps", save_steps=save_steps))
    assert ("Use a multiple of 2" in caplog.text) == warned
