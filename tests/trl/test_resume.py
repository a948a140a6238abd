"""A resumed run equals one that was never stopped, with every part; other cases cause a warning.

Policies that are killed in any epoch: test_faults.py.
"""

import pytest
from conftest import SAVES, Watched, rows, same_weights, trained, weights
from datasets import Dataset
from transformers import TrainerCallback

import budgetalloc as ba


def run(build, policy, data, steps, resume=None, **config):
    """Trains, and returns the prompts that TRL generated for and the final weights."""
    seen = Watched(trainer := build(data, max_steps=steps, lr_scheduler_type="constant", **config))
    if policy is None:
        trainer.train()
    else:
        trained(trainer, policy, resume=resume)
    return seen.prompts, weights(trainer)


def assert_resumed(whole, again):
    """`again` equals the end of the uninterrupted run `whole`."""
    assert again[0]
    assert again[0] == whole[0][-len(again[0]) :]
    assert same_weights(whole[1], again[1])


def described_rows():
    kinds = ["math", "code", "chat"]
    return Dataset.from_list([row | {"subject": kinds[n % 3], "digit": n % 10} for n, row in enumerate(rows(24))])


@pytest.mark.slow
def test_a_run_with_every_part_resumes_to_the_bit(build):
    """Features, a learned mixture within quotas, costs with a budget, a shadow, the fallback and what trackers show."""

    def part_of_run(steps, resume=None):
        config = {"max_steps": steps, "lr_scheduler_type": "constant", "report_to": "tensorboard"}
        seen = Watched(trainer := build(described_rows(), **config, **SAVES))
        callback = trained(
            trainer,
            ba.adaptive(),
            resume=resume,
            features=["text", "digit"],
            domain="subject",
            mixture="learn",
            quotas={"math": (0.25, 0.5)},
            cost="tokens",
            cost_per_step=100.0,
            shadow="thompson",
        )
        state = callback.session.state()
        return seen.prompts, weights(trainer), state

    whole, again = part_of_run(6), part_of_run(6, resume=3)
    assert_resumed(whole, again)
    assert set(whole[2]["parts"]) == {"UniformFallback", "PromptResiduals", "Trackers", "Costs", "Domains", "Shadow"}
    assert "weights" in whole[2]
    assert repr(again[2]) == repr(whole[2])


@pytest.mark.parametrize(
    ("count", "config"),
    [
        # Eight micro-batches an epoch in steps of three: the last step of an epoch has two.
        (16, {"per_device_train_batch_size": 8, "steps_per_generation": 1, "gradient_accumulation_steps": 3}),
        (12, {"shuffle_dataset": False}),
    ],
    ids=["accumulation", "no-shuffle"],
)
def test_resumed_with_other_orders_and_steps(build, count, config):
    whole = run(build, ba.knapsack(), rows(count), 8, **config, **SAVES)
    assert_resumed(whole, run(build, ba.knapsack(), rows(count), 8, 4, **config, **SAVES))


def test_a_sampler_of_the_users_own_is_reported(build, caplog):
    def resumed(resume):
        trainer = build(rows(12), max_steps=6, **SAVES)
        own = trainer._get_train_sampler
        trainer._get_train_sampler = lambda dataset=None: list(own(dataset))
        trained(trainer, ba.uniform(), resume=resume)

    resumed(None)
    resumed(2)
    assert "cannot be restored" not in caplog.text
    resumed(4)
    assert "step 4 lies in epoch 1 (counted from 0), whose order of rows cannot be restored" in caplog.text


@pytest.mark.parametrize(("at", "said"), [(2, False), (4, True)])
def test_a_stream_that_is_resumed_in_its_second_pass_is_reported(build, caplog, at, said):
    for resume in (None, at):
        data = rows(12).to_iterable_dataset()
        run(build, ba.uniform(), data, 6, resume, **SAVES)
    assert ("continues at the start of a pass" in caplog.text) == said


def test_a_finished_run_that_is_resumed_is_reported(build, caplog):
    run(build, ba.uniform(), rows(12), 4, **SAVES)
    run(build, ba.uniform(), rows(12), 5, 4)
    run(build, ba.uniform(), rows(12), 3, **SAVES)
    prompts, _ = run(build, ba.uniform(), rows(12), 3, 3)  # the end of an epoch: nothing is left to train
    assert prompts == []
    assert "finished run" not in caplog.text
    prompts, _ = run(build, ba.uniform(), rows(12), 4, 4)
    assert len(prompts) == 1
    assert "step 4 is that of a finished run (max_steps=4): transformers trains one more step" in caplog.text


class Unscale(TrainerCallback):
    """From the third step on, advantages are not divided."""

    def __init__(self, trainer):
        self.trainer = trainer

    def on_step_begin(self, args, state, control, **_):
        if state.global_step >= 2:
            self.trainer.scale_rewards = "none"


@pytest.mark.parametrize("policy", [ba.adaptive, lambda: ba.adaptive(rounds=3)])
def test_a_run_with_infinite_rewards_made_prompts_and_a_changed_scale_resumes_to_the_bit(build, tmp_path, policy):
    def infinite(completions, trainer_state, **_):
        rewards = [float(text[:1] in "024") for text in completions]
        rewards[0] = float("inf") if trainer_state.global_step % 2 else rewards[0]
        return rewards

    def part_of_run(steps, ledger, resume=None):
        stored = rows(24).rename_column("prompt", "question")
        data = stored.with_transform(lambda batch: {**batch, "prompt": batch["question"]})
        config = {"max_steps": steps, "lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 3}
        trainer = build(data, reward=infinite, **config)
        seen = Watched(trainer)
        trainer.add_callback(Unscale(trainer))
        callback = trained(trainer, policy(), resume=resume, ledger=tmp_path / ledger)
        return seen.prompts, weights(trainer), repr(callback.session.state())

    whole = part_of_run(6, "whole.jsonl")
    again = part_of_run(6, "whole.jsonl", resume=3)
    assert_resumed(whole, again)
    assert again[2] == whole[2]
    frame = ba.Ledger.read(tmp_path / "whole.jsonl").frame
    assert frame.groupby("step").reward.apply(lambda x: bool(x.isna().any())).tolist() == [False, True] * 3
