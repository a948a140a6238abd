"""What goes wrong in a long run: training stops with a clear error or goes on, and nothing is lost or counted twice."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import low_digit, rows
from transformers import TrainerCallback
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.checkpoints import last_checkpoint
from budgetalloc.trl.checks import HELD


def attach(trainer, *args, **options):
    callback = AdaptiveGRPOCallback(trainer, *args, **options)
    trainer.add_callback(callback)
    return callback


def evidence(policy):
    """Rollouts that an undiscounted policy has learned from."""
    return policy.state_dict()["evidence"].sum()


def has_its_own_methods(trainer):
    return all(getattr(trainer, name).__func__ is getattr(GRPOTrainer, name) for name in HELD)


# --- killed ---------------------------------------------------------------------------------------------------------


CHANCES = {  # kills at calls drawn by lot
    "adaptive": 7,
    "uniform": 3,
    "knapsack": 3,
    "pods": 2,
    "xrpo": 2,
    "in rounds": 2,
    "accumulation": 2,
    "reuse": 2,
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks after importing torch, which is safe on Linux")
def test_killed_again_and_again_is_as_never_killed(tmp_path, model_folder):
    """Twenty-seven kills over many epochs, by lot and in saving, and a full disk: bit for bit the same run.

    One test, because importing torch and TRL takes longer than all of it.
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
        assert one.ids_R == other.ids_R
        for column in ("step_R", "rewards_R", "lengths_R", "predicted_R", "counts_R"):
            assert (getattr(one, column) == getattr(other, column)).all()
        if name != "in rounds":
            assert set(Counter(one.step_R.tolist()).values()) == {32 if name == "pods" else 16}
    assert min(epochs.values()) >= 1, epochs


# --- a reward function that raises ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ZeroDivisionError("in a reward"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_a_reward_function_raises_comes_through_and_training_can_start_again(build, tmp_path, error):
    calls = []

    def reward(completions, trainer_state, **_):
        calls.append(trainer_state.global_step)
        if len(calls) == 3:
            raise error
        return low_digit(completions)

    trainer = build(reward=reward, max_steps=4)
    policy = ba.knapsack(discount=1.0)
    attach(trainer, policy, candidates="all", ledger=tmp_path / "ledger.jsonl")
    with pytest.raises(type(error)) as caught:
        trainer.train()
    assert caught.value is error
    assert has_its_own_methods(trainer)
    assert trainer.num_generations == 4
    assert Counter(ba.Ledger.read(tmp_path / "ledger.jsonl").step_R.tolist()) == {0: 16, 1: 16}
    assert evidence(policy) == 2 * 16

    trainer.train()
    assert calls == [0, 1, 2, 0, 1, 2, 3]
    assert has_its_own_methods(trainer)
    log = ba.Ledger.read(tmp_path / "ledger.jsonl")
    # The first attempt is void, not counted twice; steps are the policy's, which goes on.
    assert Counter(log.step_R.tolist()) == {2: 16, 3: 16, 4: 16, 5: 16}
    assert (tmp_path / "ledger.jsonl").read_text().count('"id"') == 6 * 16  # and not deleted
    assert evidence(policy) == 6 * 16  # what was seen is not forgotten


def test_a_step_that_fails_in_its_second_round_teaches_nothing(build, tmp_path):
    rounds = []

    def reward(completions, trainer_state, **_):
        rounds.append(trainer_state.global_step)
        if rounds.count(1) == 2:
            raise ZeroDivisionError
        return low_digit(completions)

    trainer = build(reward=reward)
    policy = policies.reinforce_ada(group=4, stages=3, seed=1)
    before = []
    callback = attach(trainer, policy, ledger=tmp_path / "ledger.jsonl")
    begin = ba.Policy.begin

    def remembering_begin(self, *args, **options):
        before.append(self.state_dict())
        return begin(self, *args, **options)

    ba.Policy.begin = remembering_begin
    try:
        with pytest.raises(ZeroDivisionError):
            trainer.train()
    finally:
        ba.Policy.begin = begin
    assert len(before) == 2
    state = callback.policy.state_dict()
    assert (state["step"], state["ids"]) == (1, before[1]["ids"])
    assert (state["evidence"] == before[1]["evidence"]).all()
    assert set(ba.Ledger.read(tmp_path / "ledger.jsonl").step_R.tolist()) == {0}


def test_a_ledger_that_cannot_be_written_stops_the_run_and_teaches_nothing(build, tmp_path, monkeypatch):
    trainer = build(max_steps=3)
    policy = ba.knapsack(discount=1.0)
    attach(trainer, policy, ledger=tmp_path / "ledger.jsonl")
    append = ba.LedgerWriter.append

    def full_in_step_1(self, step, *columns, **more):
        if step == 1:
            raise OSError(28, "No space left on device")
        append(self, step, *columns, **more)

    monkeypatch.setattr(ba.LedgerWriter, "append", full_in_step_1)
    with pytest.raises(OSError, match="No space left"):
        trainer.train()
    assert evidence(policy) == len(ba.Ledger.read(tmp_path / "ledger.jsonl").ids_R) == 16


def test_a_rule_that_fails_when_it_chooses_what_to_train_on_leaves_no_step_in_the_ledger(build, tmp_path):
    """The last thing that can go wrong in a step does so before the ledger hears of it."""
    trainer, ledger = build(max_steps=3), tmp_path / "ledger.jsonl"
    policy = policies.pods(generate=2, seed=1)
    keep, asked = policy.keep, []

    def fails_in_step_1(*arguments):
        asked.append(trainer.state.global_step)
        if asked[-1] == 1:
            raise ZeroDivisionError
        return keep(*arguments)

    policy = replace(policy, keep=fails_in_step_1)
    attach(trainer, policy, ledger=ledger)
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert asked == [0, 1]
    assert set(ba.Ledger.read(ledger).step_R.tolist()) == {0}
    assert policy.estimator.step == 1


# --- a run restarted ------------------------------------------------------------------------------------------------


def test_a_run_restarted_from_zero_counts_once_in_the_ledger(build, tmp_path):
    for steps in (3, 2):
        trainer = build(max_steps=steps)
        attach(trainer, ba.uniform(), ledger=tmp_path / "ledger.jsonl")
        trainer.train()
    assert Counter(ba.Ledger.read(tmp_path / "ledger.jsonl").step_R.tolist()) == {0: 16, 1: 16}


def test_half_of_an_older_checkpoint_does_not_pass_for_one(build):
    """A new run in the folder of an older one, stopped while it writes over a checkpoint of it."""
    trainer = build(max_steps=2, save_strategy="steps", save_steps=1)
    attach(trainer)
    trainer.train()
    assert last_checkpoint(trainer.args.output_dir) == f"{trainer.args.output_dir}/checkpoint-2"

    trainer = build(max_steps=2, save_strategy="steps", save_steps=2)

    def full_disk(output_dir):
        raise OSError(28, "No space left on device")

    trainer._save_optimizer_and_scheduler = full_disk
    attach(trainer)
    with pytest.raises(OSError, match="No space left"):
        trainer.train()
    assert has_its_own_methods(trainer)
    assert last_checkpoint(trainer.args.output_dir) == f"{trainer.args.output_dir}/checkpoint-1"


def test_resuming_takes_the_newest_checkpoint_that_was_written_to_its_end(build, caplog):
    settings = {"save_strategy": "steps", "save_steps": 1}
    trainer = build(max_steps=3, **settings)
    attach(trainer)
    trainer.train()
    run = Path(trainer.args.output_dir)
    torn = run / "checkpoint-3" / "trainer_state.json"
    torn.write_text(torn.read_text()[:100])
    (run / "checkpoint-10").mkdir()
    (run / "checkpoint-old").mkdir()
    assert last_checkpoint(run) == str(run / "checkpoint-2")
    trainer = build(max_steps=4, **settings)
    callback = attach(trainer)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == callback.policy.estimator.step == 4
    assert f"{run / 'checkpoint-10'} is incomplete" in caplog.text
    assert f"{run / 'checkpoint-3'} is incomplete" in caplog.text


def test_resuming_from_half_a_checkpoint_is_refused(build, tmp_path):
    half = tmp_path / "run" / "checkpoint-4"
    half.mkdir(parents=True)
    trainer = build()
    attach(trainer)
    assert last_checkpoint(tmp_path / "run") is None
    assert last_checkpoint(tmp_path / "nowhere") is None
    with pytest.raises(ba.StateError, match=r"checkpoint-4 is incomplete.*resume_from_checkpoint=None"):
        trainer.train(resume_from_checkpoint=True)
    half.rmdir()
    with pytest.raises(ValueError, match="No valid checkpoint found"):  # what transformers says
        trainer.train(resume_from_checkpoint=True)


def test_a_callback_that_was_removed_keeps_out_of_checkpoints(build):
    trainer = build(max_steps=2, save_strategy="steps", save_steps=2)
    old = attach(trainer, ba.thompson(seed=1))
    trainer.remove_callback(old)
    attach(trainer, ba.thompson(seed=2))
    trainer.train()
    state, _ = ba.load_state(f"{trainer.args.output_dir}/checkpoint-2/{STATE_FILE}")
    assert (state["seed"], state["step"]) == (2, 2)
    assert has_its_own_methods(trainer)


class Remove(TrainerCallback):
    """Removes another callback after a step of the trainer."""

    def __init__(self, trainer, other, step):
        self.trainer, self.other, self.step = trainer, other, step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            self.trainer.remove_callback(self.other)
            self.step = None  # once


@pytest.mark.parametrize("policy", [ba.knapsack, ba.adaptive, policies.pods])
def test_a_callback_that_is_removed_in_mid_run_lets_go(build, caplog, policy):
    """From then on every prompt has TRL's number of rollouts, and a checkpoint holds no beliefs that grow old."""
    groups = []

    def reward(prompts, completions, **_):
        groups.append(Counter(prompts))
        return low_digit(completions)

    trainer = build(reward=reward, max_steps=5, save_strategy="steps", save_steps=1)
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
    trainer = build(data, max_steps=4)
    callback = attach(trainer, policy, **options)
    prompts = []
    generate = trainer._generate
    trainer._generate = lambda p: prompts.extend(p) or generate(p)
    trainer.train(resume_from_checkpoint=f"{trainer.args.output_dir}/checkpoint-2")
    return callback, prompts


@pytest.fixture
def saved(build):
    trainer = build(max_steps=2, save_strategy="steps", save_steps=2)
    callback = attach(trainer, ba.thompson(discount=1.0, idle=1.0))
    trainer.train()
    return callback.policy.state_dict()


def test_the_state_of_another_policy_warns(build, saved, caplog):
    callback, _ = resumed(build, ba.knapsack())
    assert callback.policy.estimator.step == 4
    said = f"was saved by the policy {ba.thompson(discount=1.0, idle=1.0)}, and this trainer has {ba.knapsack()}"
    assert said in caplog.text


def test_the_state_of_another_policy_is_refused_where_it_lacks_what_this_one_remembers(build, saved):
    with pytest.raises(ba.StateError, match="another policy saved it, or it is damaged"):
        resumed(build, policies.cero())


def test_prompts_that_vanish_from_the_dataset_are_not_offered_and_not_forgotten(build, saved):
    gone = set(saved["ids"][:3])
    data = rows(24).filter(lambda row: row["prompt_id"] not in gone)
    for candidates in ("all", 1):
        policy = ba.thompson(discount=1.0, idle=1.0)
        callback, prompts = resumed(build, policy, data, candidates=candidates, allow_dataset_change=True)
        assert not {f"{name:03d}=" for name in gone} & set(prompts)
        state = callback.policy.state_dict()
        assert state["ids"][: len(saved["ids"])] == saved["ids"]
        assert (state["evidence"][:3] == saved["evidence"][:3]).all()
        assert evidence(policy) == 4 * 16
