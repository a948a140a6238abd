"""Checkpoints hold the beliefs, and only what fits is read. Runs that are killed and resumed: test_faults.py."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import rows
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.trl import AdaptiveGRPOCallback


@pytest.fixture
def saved(build):
    """A trainer that trained with checkpoints, and its callback."""
    trainer = build(max_steps=4, save_strategy="steps", save_steps=2)
    callback = AdaptiveGRPOCallback(trainer)
    trainer.add_callback(callback)
    trainer.train()
    return trainer, callback


def resume(build, **options):
    trainer = build(options.pop("data", None), max_steps=6, save_strategy="no")
    callback = AdaptiveGRPOCallback(trainer, **options)
    trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=f"{trainer.args.output_dir}/checkpoint-4")
    return callback


def test_every_checkpoint_holds_the_state_of_its_step(saved):
    trainer, callback = saved
    steps = [ba.load_state(f"{trainer.args.output_dir}/checkpoint-{n}/{STATE_FILE}")[0]["step"] for n in (2, 4)]
    assert steps == [2, 4]
    state, about = ba.load_state(f"{trainer.args.output_dir}/checkpoint-4/{STATE_FILE}")
    assert (state["evidence"] == callback.policy.state_dict()["evidence"]).all()
    assert about["policy"] == callback.policy.name
    assert about["trainer_step"] == 4


def test_beliefs_of_another_step_of_the_trainer_are_warned_of(saved, build, caplog):
    folder = Path(saved[0].args.output_dir)
    resume(build)
    assert "belong together" not in caplog.text
    (folder / "checkpoint-2" / STATE_FILE).replace(folder / "checkpoint-4" / STATE_FILE)
    resume(build)
    assert "was saved at step 2 of the trainer, and the checkpoint is of step 4" in caplog.text


def test_resume_goes_on_from_the_saved_beliefs(saved, build):
    assert resume(build).policy.estimator.step == 6


def test_another_dataset_is_refused_unless_allowed(saved, build):
    with pytest.raises(ba.StateError, match=r"belongs to the train dataset 24-.* has 30-.*allow_dataset_change=True"):
        resume(build, data=rows(30))
    other = Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n + 1} for n in range(24)])
    with pytest.raises(ba.StateError, match="belongs to the train dataset"):
        resume(build, data=other)
    assert resume(build, data=rows(30), allow_dataset_change=True).policy.estimator.step == 6


def test_another_seed_is_refused(saved, build):
    with pytest.raises(ba.StateError, match=r"saved with seed=0, this policy has seed=1"):
        resume(build, policy=ba.adaptive(seed=1))


def test_damaged_and_foreign_files_are_refused(saved, build):
    path = Path(saved[0].args.output_dir) / "checkpoint-4" / STATE_FILE
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"something else", pickle.dumps({"meta": 1})):
        path.write_bytes(content)
        with pytest.raises(
            ba.StateError, match=f"checkpoint-4/{STATE_FILE} is damaged or was not written by budgetalloc"
        ):
            resume(build)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(ba.StateError, match="was not written by budgetalloc"):
        resume(build)
    state, about = saved[1].policy.state_dict(), {"dataset": saved[1].prompts.fingerprint}
    ba.save_state(path, {**state, "version": 99}, about)
    with pytest.raises(ba.StateError, match="version 99"):
        resume(build)


def test_a_checkpoint_without_state_warns_and_starts_cold(saved, build, caplog):
    (Path(saved[0].args.output_dir) / "checkpoint-4" / STATE_FILE).unlink()
    callback = resume(build)
    assert callback.policy.estimator.step == 2  # the two steps after the checkpoint
    assert "Beliefs start cold" in caplog.text


def test_saves_between_generations_warn(build, caplog):
    trainer = build(steps_per_generation=4, per_device_train_batch_size=4, save_strategy="steps", save_steps=2)
    trainer.add_callback(AdaptiveGRPOCallback(trainer))
    trainer.train()
    assert "Use a multiple of 4" in caplog.text
