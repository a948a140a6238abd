"""A run resumed in any epoch equals one that was never stopped; other cases cause a warning. Kills: test_faults.py."""

import pytest
from conftest import SAVES, Watched, rows, same_weights, trained, weights

import budgetalloc as ba

ONE_CANDIDATE = {
    "uniform": lambda: ba.uniform(seed=3),
    "knapsack": lambda: ba.knapsack(seed=3),
    "pods": lambda: ba.methods.pods(generate=2, seed=3),
    "xrpo": lambda: ba.methods.xrpo(seed=3),
}


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


# An epoch is three steps: at the end of the first, in the second, in the third.
@pytest.mark.parametrize(("name", "at"), [("uniform", 3), ("uniform", 4), ("knapsack", 7), ("pods", 4), ("xrpo", 7)])
def test_resumed_in_a_later_epoch_equals_an_uninterrupted_run(build, name, at):
    whole = run(build, ONE_CANDIDATE[name](), rows(12), 9, save_strategy="steps", save_steps=at)
    assert_resumed(whole, run(build, ONE_CANDIDATE[name](), rows(12), 9, at))


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


def test_a_first_epoch_keeps_the_order_of_trl(build):
    assert_resumed(run(build, None, rows(24), 4), run(build, ba.uniform(), rows(24), 4))
