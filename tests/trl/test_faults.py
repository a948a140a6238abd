"""Failures in a long run: training stops with a clear error or continues, and nothing is lost or counted twice."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import SAVES, Watched, attach, low_digit, rows, trained
from transformers import TrainerCallback
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.trl.checkpoints import last_checkpoint
from budgetalloc.trl.compatibility import HELD
from budgetalloc.trl.mixin import AdaptiveMixin


def evidence(policy):
    """Rollouts that an undiscounted policy has learned from."""
    return policy.state_dict()["evidence"].sum()


def has_its_own_methods(trainer):
    """Nothing is set on the trainer, and what the mixin overrides calls TRL's methods."""
    below = super(AdaptiveMixin, trainer)
    own = all(getattr(below, name).__func__ is getattr(GRPOTrainer, name) for name in HELD)
    return own and trainer._budgetalloc is None and not {*HELD, "train"} & vars(trainer).keys()


# --- killed ---------------------------------------------------------------------------------------------------------


CHANCES = {  # kills at random calls
    "adaptive": 4,
    "uniform": 2,
    "pods": 2,
    "xrpo": 2,
    "in rounds": 2,
    "accumulation": 2,
    "reuse": 2,
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks after importing torch, which is safe on Linux")
def test_a_run_with_many_kills_equals_one_without(tmp_path, model_folder):
    """20 kills over many epochs, at random and while saving, and a full disk: the run stays the same to the bit.

    This is one test, because importing torch and TRL takes longer than the runs.
    """
    script, package = Path(__file__).with_name("killed_often.py"), Path(ba.__file__).parents[1]
    path = os.pathsep.join([str(script.parent), str(package), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(model_folder), json.dumps(CHANCES)],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    epochs = Counter()
    for name, chances in CHANCES.items():
        folder = tmp_path / name
        ended = json.loads((folder / "ended.json").read_text())
        assert ended["whole"] == ended["last"] == "done", (name, done.stderr[-3000:])
        how = Counter(end for stop, end, _ in ended["stops"] if stop not in ("ledger", "state", "model"))
        assert how == {"killed": chances + 4 if name == "adaptive" else chances}
        epochs[name] = max(epoch for _, end, epoch in ended["stops"] if end == "killed")
        for stop, end, _ in ended["stops"]:
            if stop in ("ledger", "state"):
                assert "File too large" in end
                assert {"ledger": "ledger.jsonl", "state": STATE_FILE}[stop] in end
                assert "Free some space and resume from the last checkpoint" in end

        one, other = (np.load(folder / run / "weights.npz") for run in ("whole", "stopped"))
        assert all((one[key] == other[key]).all() for key in one.files), name
        (state, _), (state2, _) = (ba.load_state(folder / run / "final.npz") for run in ("whole", "stopped"))
        assert state["ids"] == state2["ids"]
        assert all((np.asarray(state[key]) == np.asarray(state2[key])).all() for key in ("evidence", "last", "step"))
        one, other = (ba.Ledger.read(folder / run / "ledger.jsonl") for run in ("whole", "stopped"))
        assert one.frame.prompt.tolist() == other.frame.prompt.tolist()
        for column in ("step", "reward", "length", "predicted"):
            assert (one.frame[column] == other.frame[column]).all()
        if name != "in rounds":
            assert set(Counter(one.frame.step.tolist()).values()) == {32 if name == "pods" else 16}
    assert min(epochs.values()) >= 1, epochs


# --- a reward function that raises ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ZeroDivisionError("in a reward"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_an_error_in_a_reward_function_is_raised_and_training_can_start_again(build, ledger, error):
    calls = []

    def reward(completions, trainer_state, **_):
        calls.append(trainer_state.global_step)
        if len(calls) == 3:
            raise error
        return low_digit(completions)

    trainer = build(reward=reward, max_steps=4)
    policy = ba.knapsack(discount=1.0)
    attach(trainer, policy, candidates="all", ledger=ledger)
    with pytest.raises(type(error)) as caught:
        trainer.train()
    assert caught.value is error
    assert has_its_own_methods(trainer)
    assert trainer.num_generations == 4
    assert Counter(ba.Ledger.read(ledger).frame.step.tolist()) == {0: 16, 1: 16}
    assert evidence(policy) == 2 * 16

    trainer.train()
    assert calls == [0, 1, 2, 0, 1, 2, 3]
    assert has_its_own_methods(trainer)
    # The first attempt does not count. Steps are those of the policy, which continues.
    assert Counter(ba.Ledger.read(ledger).frame.step.tolist()) == {2: 16, 3: 16, 4: 16, 5: 16}
    assert ledger.read_text().count('"id"') == 6 * 16  # the first attempt is not deleted
    assert evidence(policy) == 6 * 16  # nor forgotten


# --- a run restarted ------------------------------------------------------------------------------------------------


def test_an_overwritten_checkpoint_that_is_half_old_is_incomplete(build):
    """A new run in the folder of an older run is stopped while it overwrites a checkpoint."""
    trainer = trained(build(max_steps=2, **SAVES)).trainer
    assert last_checkpoint(trainer.args.output_dir) == f"{trainer.args.output_dir}/checkpoint-2"

    trainer = build(max_steps=2, save_strategy="steps", save_steps=2)

    def full_disk(output_dir):
        raise OSError(28, "No space left on device")

    trainer._save_optimizer_and_scheduler = full_disk
    with pytest.raises(OSError, match="No space left"):
        trained(trainer)
    assert has_its_own_methods(trainer)
    assert last_checkpoint(trainer.args.output_dir) == f"{trainer.args.output_dir}/checkpoint-1"


def test_resuming_takes_the_newest_complete_checkpoint(build, caplog):
    run = Path(trained(build(max_steps=3, **SAVES)).trainer.args.output_dir)
    torn = run / "checkpoint-3" / "trainer_state.json"
    torn.write_text(torn.read_text()[:100])
    (run / "checkpoint-10").mkdir()
    (run / "checkpoint-old").mkdir()
    assert last_checkpoint(run) == str(run / "checkpoint-2")
    callback = attach(build(**SAVES))
    callback.trainer.train(resume_from_checkpoint=True)
    assert callback.trainer.state.global_step == callback.policy.estimator.step == 4
    assert f"{run / 'checkpoint-10'} is incomplete" in caplog.text
    assert f"{run / 'checkpoint-3'} is incomplete" in caplog.text


def test_resuming_from_an_incomplete_checkpoint_is_refused(build, tmp_path):
    half = tmp_path / "run" / "checkpoint-4"
    half.mkdir(parents=True)
    trainer = attach(build()).trainer
    assert last_checkpoint(tmp_path / "run") is None
    assert last_checkpoint(tmp_path / "nowhere") is None
    with pytest.raises(ba.StateError, match=r"checkpoint-4 is incomplete.*resume_from_checkpoint=None"):
        trainer.train(resume_from_checkpoint=True)
    half.rmdir()
    with pytest.raises(ValueError, match="No valid checkpoint found"):  # what transformers says
        trainer.train(resume_from_checkpoint=True)


class Remove(TrainerCallback):
    """Removes another callback after a step of the trainer."""

    def __init__(self, trainer, other, step):
        self.trainer, self.other, self.step = trainer, other, step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            self.trainer.remove_callback(self.other)
            self.step = None  # once


@pytest.mark.parametrize("policy", [ba.adaptive, ba.methods.pods])
def test_a_callback_that_is_removed_during_a_run_detaches(build, caplog, policy):
    """From then on every prompt gets TRL's number of rollouts, and checkpoints hold no beliefs."""
    groups = []

    def reward(prompts, completions, **_):
        groups.append(Counter(prompts))
        return low_digit(completions)

    trainer = build(reward=reward, max_steps=5, **SAVES)
    callback = attach(trainer, policy(seed=1))
    trainer.add_callback(Remove(trainer, callback, 2))
    trainer.train()
    assert callback.policy.estimator.step == 2
    assert all(set(each.values()) == {4} for each in groups[-3:])
    assert caplog.text.count("removed before step 2: from now on TRL generates 4 rollouts of each prompt") == 1
    saved = [n for n in range(1, 6) if (Path(trainer.args.output_dir) / f"checkpoint-{n}" / STATE_FILE).exists()]
    assert saved == [1]  # that of step 2 is saved after the callback is gone
    assert has_its_own_methods(trainer)
    trainer.add_callback(callback)
    trainer.train()
    assert callback.policy.estimator.step == 2 + 5  # two before, five of the new run
    assert has_its_own_methods(trainer)


# --- another policy, another dataset ---------------------------------------------------------------------------------


def resumed(build, policy=None, data=None, **options):
    """The callback of a resumed run, and the prompts that it generated for."""
    seen = Watched(trainer := build(data))
    return trained(trainer, policy, resume=2, **options), {prompt for prompts in seen.prompts for prompt in prompts}


@pytest.fixture
def saved(build):
    return trained(build(max_steps=2, **SAVES), ba.thompson(discount=1.0, idle=1.0)).policy.state_dict()


def test_the_state_of_another_policy_warns(build, saved, caplog):
    callback, _ = resumed(build, ba.knapsack())
    assert callback.policy.estimator.step == 4
    said = f"was saved by the policy {ba.thompson(discount=1.0, idle=1.0)}, and this trainer has {ba.knapsack()}"
    assert said in caplog.text


def test_prompts_removed_from_the_dataset_are_not_offered_and_not_forgotten(build, saved):
    gone = set(saved["ids"][:3])
    data = rows(24).filter(lambda row: row["prompt_id"] not in gone)
    for candidates in ("all", 1):
        policy = ba.thompson(discount=1.0, idle=1.0)
        callback, prompts = resumed(build, policy, data, candidates=candidates, allow_dataset_change=True)
        assert not {f"{name:03d}=" for name in gone} & prompts
        state = callback.policy.state_dict()
        assert state["ids"][: len(saved["ids"])] == saved["ids"]
        assert (state["evidence"][:3] == saved["evidence"][:3]).all()
        assert evidence(policy) == 4 * 16
