"""Checkpoints: a run that was killed and resumed decides as one that was never killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import rows
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.callback import STATE_FILE


def run(folder, model, policy, die_at=-1, resume="start", config=None):
    script = Path(__file__).with_name("killed_run.py")
    arguments = [str(folder), str(model), policy, str(die_at), resume, json.dumps(config or {})]
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(script.parent)},
    )


@pytest.mark.parametrize(
    ("policy", "config"),
    [
        ("adaptive", {}),
        ("knapsack", {"steps_per_generation": 2, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}),
        ("uniform", {"num_iterations": 2}),
    ],
)
def test_killed_and_resumed_is_as_never_killed(tmp_path, model_folder, policy, config):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = run(whole, model_folder, policy, config=config)
    assert done.returncode == 0, done.stderr[-2000:]
    assert run(killed, model_folder, policy, die_at=6 if config else 5, config=config).returncode == -signal.SIGKILL
    assert not (killed / "final.npz").exists()
    done = run(killed, model_folder, policy, resume="resume", config=config)
    assert done.returncode == 0, done.stderr[-2000:]

    (state, about), (state2, about2) = (ba.load_state(folder / "final.npz") for folder in (whole, killed))
    assert state["ids"] == state2["ids"]
    assert (state["evidence"] == state2["evidence"]).all()
    assert (state["last"] == state2["last"]).all()
    assert about["losses"] == about2["losses"]
    one, other = ba.Ledger.read(whole / "ledger.jsonl"), ba.Ledger.read(killed / "ledger.jsonl")
    assert one.ids_R == other.ids_R
    assert (one.step_R == other.step_R).all()
    assert (one.rewards_R == other.rewards_R).all()
    assert (one.counts_R == other.counts_R).all()


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
    for content in (whole[: len(whole) // 2], b"", b"something else"):
        path.write_bytes(content)
        with pytest.raises(ba.StateError, match="is damaged or was not written by budgetalloc"):
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
