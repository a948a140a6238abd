"""What TRL survives, and what may change in a run: infinite rewards, the scale, rows made when they are read."""

import numpy as np
import pytest
from conftest import recorded, rows, same_weights, trained, weights
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc import policies

INF = float("inf")


def odd(completions, **_):
    return [len(completion) % 2 + ord((completion or "0")[0]) % 2 for completion in completions]


def ratio(value, places):
    """A reward function with infinite rewards in these rows of the second step."""

    def ratio(completions, trainer_state, **_):
        rewards = [float(x) for x in odd(completions)]
        for at in places if trainer_state.global_step == 1 else ():
            rewards[at] = value
        return rewards

    return ratio


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize(("value", "weight"), [(INF, [1.0, 1.0]), (-INF, [1.0, 0.0]), (3e38, [1.0, 100.0])])
def test_infinite_rewards_leave_uniform_as_trl(build, scale, value, weight):
    functions = [odd, ratio(value, [0, 5])]
    config = {"scale_rewards": scale, "reward_weights": weight, "max_steps": 3}
    plain = build(reward=functions, **config)
    plain.train()
    callback = trained(build(reward=functions, **config), ba.uniform())
    assert callback.trainer.state.global_step == callback.policy.estimator.step == 3
    same = zip(weights(plain).values(), weights(callback.trainer).values(), strict=True)
    assert all(np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True) for x, y in same)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("policy", [ba.adaptive, lambda: ba.adaptive(rounds=3), ba.knapsack])
def test_infinite_rewards_are_left_out_and_named_once(build, ledger, caplog, policy, scale):
    trainer = build(reward=ratio(INF, [0]), scale_rewards=scale, max_steps=3)
    batches = recorded(trainer)
    callback = trained(trainer, policy(), ledger=ledger)
    assert callback.trainer.state.global_step == 3
    assert all(np.isfinite(np.asarray(x)).all() for x in weights(trainer).values())
    assert all(np.isfinite(np.asarray(batch["advantages"])).all() for batch in batches)
    assert caplog.text.count("infinite reward") == 1
    assert "Step 1: an infinite reward, from 'ratio'" in caplog.text
    frame = ba.Ledger.read(ledger).frame
    assert frame[frame.step == 1].reward.isna().sum() >= 1
    assert not frame[frame.step != 1].reward.isna().any()


class Unscale(TrainerCallback):
    def __init__(self, trainer):
        self.trainer = trainer

    def on_step_end(self, args, state, control, **_):
        self.trainer.scale_rewards = "none"


@pytest.mark.parametrize("given", [{}, {"scale": "group"}])
def test_the_scale_is_read_at_each_step(build, given):
    """A scale that the user gave holds."""

    def end(first, change):
        trainer = build(reward=odd, scale_rewards=first, max_steps=3)
        if change:
            trainer.add_callback(Unscale(trainer))
        callback = trained(trainer, policies.sampled(groups=2), **given)
        return callback.session.options.scale, weights(trainer)

    (kept, before), (changed, after) = end("group", False), end("group", True)
    assert (kept, changed) == ("group", given.get("scale", "none"))
    assert same_weights(before, after) == bool(given)


def test_the_scale_may_change_between_two_trainings(build):
    trainer = trained(build(max_steps=1), ba.adaptive()).trainer
    trainer.scale_rewards = "none"
    callback = next(each for each in trainer.callback_handler.callbacks if hasattr(each, "held_out"))
    trainer.train()
    assert callback.options.scale == callback.session.options.scale == "none"
    assert callback.session.options.trainer_scale == "none"  # so that nothing gives advantages the size of "group"


STORED = rows(24).rename_columns({"prompt": "question", "prompt_id": "uid"})
MADE = {
    "prompt": lambda b: {"prompt": b["question"]},
    "both": lambda b: {"prompt": b["question"], "prompt_id": b["uid"]},
    "replaced": lambda b: {"prompt": [f"{x}" for x in b["question"]], "question": b["uid"]},
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("candidates", [1, "all"])
def test_rows_made_by_a_transform(build, ledger, made, candidates):
    callback = trained(
        build(STORED.with_transform(MADE[made]), max_steps=2), ba.adaptive(), candidates=candidates, ledger=ledger
    )
    assert callback.trainer.state.global_step == 2
    assert len(callback.prompts.pool) == 24
    assert set(ba.Ledger.read(ledger).texts.values()) <= set(STORED["question"])
    plain = build(STORED.with_transform(MADE[made]), max_steps=2)
    plain.train()
    alike = trained(build(STORED.with_transform(MADE[made]), max_steps=2), ba.uniform()).trainer
    assert same_weights(weights(plain), weights(alike))


def test_ids_made_by_a_transform_are_checked(build):
    twice = STORED.with_transform(lambda b: {"prompt": b["question"], "prompt_id": [x % 3 for x in b["uid"]]})
    with pytest.raises(ba.InputError, match="names two prompts of the train dataset"):
        trained(build(twice), ba.adaptive())


def test_hidden_columns_are_not_read(build):
    hidden = rows(24).with_format("numpy", columns=["prompt"])
    callback = trained(build(hidden, max_steps=1), ba.adaptive())
    assert callback.prompts.column is None
    assert len(callback.prompts.pool) == 24


class At(TrainerCallback):
    """Sets attributes of the trainer, or of its settings of generation, after this step."""

    def __init__(self, changes, step, **given):
        self.changes, self.step, self.given = changes, step, given

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            for name, value in self.given.items():
                setattr(self.changes, name, value)


def changed(trainer, step, **given):
    trainer.add_callback(At(trainer.generation_config if "temperature" in given else trainer, step, **given))
    return trainer


def by_blocks(completions, **_):
    lengths = np.array([len(x) for x in completions], dtype=float).reshape(-1, 4)
    return (lengths - lengths.max(axis=1, keepdims=True)).ravel().tolist()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"multi_objective_aggregation": "normalize_then_sum"}, "normalises each reward over equal groups"),
        ({"reward_funcs": [by_blocks, odd]}, "'odd' seems to compare|seems to compare the completions"),
    ],
)
def test_what_is_refused_at_first_is_refused_in_a_run(build, ledger, given, said):
    config = {"reward": [odd, odd], "max_steps": 4}
    trainer = changed(build(**config), 2, **given)
    with pytest.raises(ba.UnsupportedError, match=said):
        trained(trainer, ba.adaptive(), ledger=ledger)
    assert ba.Ledger.read(ledger).frame.step.unique().tolist() == [0, 1]  # nothing is lost
    plain = changed(build(**config), 2, **given)
    plain.train()
    alike = trained(changed(build(**config), 2, **given), ba.uniform()).trainer
    assert same_weights(weights(plain), weights(alike))


@pytest.mark.parametrize("given", [{"num_generations": 2}, {"temperature": 0.3}])
def test_group_size_and_temperature_that_change_in_a_run(build, ledger, given):
    plain = changed(build(reward=odd, max_steps=4), 2, **given)
    plain.train()
    alike = trained(changed(build(reward=odd, max_steps=4), 2, **given), ba.uniform(), ledger=ledger).trainer
    assert same_weights(weights(plain), weights(alike))
    unchanged = trained(build(reward=odd, max_steps=4), ba.adaptive()).trainer
    callback = trained(changed(build(reward=odd, max_steps=4), 2, **given), ba.adaptive())
    assert callback.policy.estimator.step == 4
    assert not same_weights(weights(unchanged), weights(callback.trainer))  # also the size of groups is followed


def test_columns_in_torchs_format_and_features_of_made_ones(build):
    stored = rows(24)
    callback = trained(build(stored.with_format("torch"), reward=odd, max_steps=2), ba.adaptive())
    assert sorted(callback.prompts.pool) == sorted(stored["prompt_id"])
    made = STORED.with_transform(lambda b: {"prompt": b["question"], "digit": [float(x % 10) for x in b["uid"]]})
    callback = trained(build(made, reward=odd, max_steps=2), ba.adaptive(), features="digit")
    assert callback.policy.estimator.features.count > 0
