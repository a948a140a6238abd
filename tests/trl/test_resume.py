"""A run that is resumed in any epoch is the run that was never stopped: other cases are said. Kills: test_faults.py."""

import numpy as np
import pytest
from conftest import rows

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.trl import AdaptiveGRPOCallback

ONE_CANDIDATE = {
    "uniform": lambda: ba.uniform(seed=3),
    "knapsack": lambda: ba.knapsack(seed=3),
    "pods": lambda: policies.pods(generate=2, seed=3),
    "xrpo": lambda: policies.xrpo(seed=3),
}


def run(build, policy, data, steps, resume=None, **config):
    """Trains, and gives the rows that TRL was asked for and the final weights."""
    trainer = build(data, max_steps=steps, lr_scheduler_type="constant", **config)
    given = []
    generate = trainer._generate
    trainer._generate = lambda prompts: given.append(list(prompts)) or generate(prompts)
    if policy is not None:
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy))
    trainer.train(resume_from_checkpoint=resume and f"{trainer.args.output_dir}/checkpoint-{resume}")
    return given, {name: value.detach().numpy().copy() for name, value in trainer.model.state_dict().items()}


# An epoch is three steps: at the end of the first, in the second, in the third.
@pytest.mark.parametrize(("name", "at"), [("uniform", 3), ("uniform", 4), ("knapsack", 7), ("pods", 4), ("xrpo", 7)])
def test_resumed_in_a_later_epoch_is_as_never_stopped(build, name, at):
    saves = {"save_strategy": "steps", "save_steps": at}
    whole, weights = run(build, ONE_CANDIDATE[name](), rows(12), 9, **saves)
    again, others = run(build, ONE_CANDIDATE[name](), rows(12), 9, at)
    assert again == whole[len(whole) - len(again) :]
    assert again
    assert all((weights[key] == others[key]).all() for key in weights)


def test_with_gradient_accumulation_that_does_not_divide_the_epoch(build):
    """Eight micro-batches of an epoch in steps of three: the last step of an epoch has two."""
    config = {
        "per_device_train_batch_size": 8,
        "steps_per_generation": 1,
        "gradient_accumulation_steps": 3,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    whole, weights = run(build, ba.knapsack(), rows(16), 8, **config)
    again, others = run(build, ba.knapsack(), rows(16), 8, 4, **config)
    assert again == whole[len(whole) - len(again) :]
    assert all((weights[key] == others[key]).all() for key in weights)


def test_an_order_that_is_not_shuffled_stays(build):
    saves = {"save_strategy": "steps", "save_steps": 1, "shuffle_dataset": False}
    whole, _ = run(build, ba.knapsack(), rows(12), 8, **saves)
    again, _ = run(build, ba.knapsack(), rows(12), 8, 4, **saves)
    assert again == whole[4:]


def test_a_sampler_of_the_users_own_is_said(build, caplog):
    def resumed(resume):
        trainer = build(rows(12), max_steps=6, save_strategy="steps", save_steps=1)
        own = trainer._get_train_sampler
        trainer._get_train_sampler = lambda dataset=None: list(own(dataset))
        trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.uniform()))
        trainer.train(resume_from_checkpoint=resume and f"{trainer.args.output_dir}/checkpoint-{resume}")

    resumed(None)
    resumed(2)
    assert "cannot be restored" not in caplog.text
    resumed(4)
    assert "step 4 lies in epoch 1 (counted from 0), whose order of rows cannot be restored" in caplog.text


@pytest.mark.parametrize(("at", "said"), [(2, False), (4, True)])
def test_a_stream_that_is_resumed_in_its_second_pass_is_said(build, caplog, at, said):
    for resume in (None, at):
        data = rows(12).to_iterable_dataset()
        run(build, ba.uniform(), data, 6, resume, save_strategy="steps", save_steps=1)
    assert ("lies in its second pass or later" in caplog.text) == said


def test_a_finished_run_that_is_resumed_is_said(build, caplog):
    saves = {"save_strategy": "steps", "save_steps": 1}
    run(build, ba.uniform(), rows(12), 4, **saves)
    given, _ = run(build, ba.uniform(), rows(12), 5, 4)
    assert "finished run" not in caplog.text
    run(build, ba.uniform(), rows(12), 3, **saves)
    given, _ = run(build, ba.uniform(), rows(12), 3, 3)  # the end of an epoch: nothing is left to train
    assert given == []
    assert "finished run" not in caplog.text
    given, _ = run(build, ba.uniform(), rows(12), 4, 4)
    assert len(given) == 1
    assert "step 4 is that of a finished run (max_steps=4): transformers trains one more step" in caplog.text


def test_a_first_epoch_is_left_alone(build):
    whole, weights = run(build, ba.uniform(), rows(24), 4)
    plain, others = run(build, None, rows(24), 4)
    assert whole == plain
    assert all(np.array_equal(weights[key], others[key]) for key in weights)
