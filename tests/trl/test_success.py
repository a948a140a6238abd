"""Rewards of every kind on TRL's real trainer: what the beliefs learn, and what the model is trained with."""

import numpy as np
import pytest
import torch
from conftest import Watched, logged, low_digit, same_weights, trained, weights

import budgetalloc as ba


def advantages(seen):
    """The advantages of every batch that the loss received."""
    return [batch["advantages"].double().numpy() for batch in seen.batches]


def accuracy(completions, prompt_id, **_):
    """Prompts 0, 3, 6, ... never succeed, 1, 4, ... half the time, 2, 5, ... always."""
    coins = low_digit(completions)
    return [(0.0, coin, 1.0)[name % 3] for name, coin in zip(prompt_id, coins, strict=True)]


def form(completions, **_):
    return [1.0] * len(completions)


def by_length(completions, **_):
    return [float(len(text)) for text in completions]


def negative(completions, **_):
    return [-1.0 - len(text) for text in completions]


async def slowly(completions, **_):
    return [3.0 * x for x in low_digit(completions)]


def sometimes(completions, prompt_id, **_):
    return [None if name % 3 == 0 else 5.0 * x for name, x in zip(prompt_id, low_digit(completions), strict=True)]


def nothing(completions, **_):
    return [None] * len(completions)


REWARDS = {
    "by length": ([by_length], None),
    "negative": ([negative], None),
    "several": ([by_length, form, negative], [1.0, 1.0, 0.5]),
    "one of weight 0": ([by_length, low_digit], [1.0, 0.0]),
    "asynchronous": ([slowly], None),
    "asynchronous among others": ([slowly, form, slowly], [1.0, 0.5, 2.0]),
    "none for some": ([sometimes], None),
    "none at all": ([nothing], None),
    "one of several gives none": ([nothing, form, by_length], None),
}


@pytest.mark.parametrize("name", REWARDS)
def test_trains_without_a_range_of_rewards(build, name):
    reward, factors = REWARDS[name]
    trainer = build(reward=reward, reward_weights=factors, max_steps=3)
    before, seen = weights(trainer), Watched(trainer)
    trained(trainer)
    losses = logged(trainer, "loss")
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    moved = not same_weights(before, weights(trainer))
    assert moved == any(each.any() for each in advantages(seen)) == (name != "none at all")


def math(completions, prompt_id, **_):
    return [coin if name % 2 else None for name, coin in zip(prompt_id, low_digit(completions), strict=True)]


def code(completions, prompt_id, **_):
    return [None if name % 2 else len(text) / 4 for name, text in zip(prompt_id, completions, strict=True)]


@pytest.mark.parametrize("reward", [[by_length, nothing], [form, math, code]])
def test_every_prompt_with_rewards_gets_a_belief(build, ledger, caplog, reward):
    """Also where a function returns only None, or returns None outside its domain."""
    seen = Watched(trainer := build(reward=reward))
    callback = trained(trainer, ba.adaptive(), ledger=ledger)
    log = ba.Ledger.read(ledger)
    mixed = [len(np.unique(log.frame.reward.to_numpy()[log.frame.step.to_numpy() == step])) > 1 for step in range(4)]
    assert [bool(each.any()) for each in advantages(seen)] == mixed
    assert any(mixed)
    assert len(np.unique(log.frame.success.to_numpy())) > 2  # graded ones among them
    assert not np.isnan(log.frame.success.to_numpy()).any()
    assert set(callback.policy.estimator.ids()) == set(log.frame.prompt.tolist())
    said = [record.message for record in caplog.records if "uccess" in record.message]
    assert len(said) == 1 + (math in reward)  # what success is, and where its function returned None
    assert ("nothing" if nothing in reward else "math") in said[-1]


def test_a_reward_outside_the_range_is_clipped_counted_and_reported_once(build, caplog):
    calls = []

    def penalty(completions, **_):
        calls.append(0)
        coins = low_digit(completions)
        return [-0.1, *coins[1:]] if len(calls) > 1 else coins

    callback = trained(build(reward=penalty), reward_range=(0.0, 1.0))
    assert logged(callback.trainer, "budgetalloc/rewards_clipped") == [0.0, 1.0, 1.0, 1.0]
    (message,) = [record.message for record in caplog.records if "reward_range" in record.message]
    assert "A reward of -0.1 lies outside" in message
    assert callback.policy.estimator.step == 4


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5])
def test_equal_rewards_give_no_gradient_under_any_belief(build, value):
    """All prompts fail, or all succeed, after beliefs that predicted otherwise."""
    trainer = build(reward=lambda completions, **_: [value] * len(completions), beta=0.0, weight_decay=0.0)
    policy = ba.adaptive()
    policy.observe([n for n in range(12) for _ in range(4)], [1, 0, 1, 0] * 12)
    before = weights(trainer)
    trained(trainer, policy)
    assert same_weights(before, weights(trainer))
    assert logged(trainer, "budgetalloc/all_equal") == [1.0] * 4


@pytest.mark.parametrize(
    ("success", "expected"),
    [
        (None, lambda acc, _: acc),
        ("form", lambda _, form: form),
        (0, lambda acc, _: acc),
        (1.75, lambda acc, form: acc + 2 * form >= 1.75),
        (lambda scores: scores["accuracy"] * scores["form"] / 2, lambda acc, form: acc * form / 2),
    ],
)
def test_beliefs_and_ledger_hold_success_and_advantages_the_total(build, ledger, success, expected):
    def form(completions, **_):
        return [0.25 * (len(text) % 4) for text in completions]

    trainer = build(reward=[accuracy, form], reward_weights=[1.0, 2.0], max_steps=3)
    seen, scored, score = Watched(trainer), [], trainer._calculate_rewards
    trainer._calculate_rewards = lambda *given: scored.append(score(*given)) or scored[-1]
    policy = ba.knapsack(discount=1.0)
    trained(trainer, policy, success=success, baseline="group", scale="none", ledger=ledger)
    scores_RF = torch.cat(scored).double().numpy()
    log = ba.Ledger.read(ledger)
    np.testing.assert_allclose(log.frame.reward.to_numpy(), scores_RF @ [1, 2], atol=1e-6)
    np.testing.assert_allclose(log.frame.success.to_numpy(), expected(*scores_RF.T), atol=1e-6)
    state = policy.state_dict()
    for name, (solved, failed) in zip(state["ids"], state["evidence"][:, :2], strict=True):
        of_it = np.array(log.frame.prompt.tolist()) == name
        assert solved == pytest.approx(log.frame.success.to_numpy()[of_it].sum(), abs=1e-6)
        assert solved + failed == pytest.approx(of_it.sum())
    for step, advantages_R in enumerate(advantages(seen)):
        rows = log.frame[log.frame.step == step]
        right_R = ba.group_advantages(rows.reward.to_numpy(), rows.prompt.tolist(), "group", "none")
        np.testing.assert_allclose(np.sort(advantages_R), np.sort(right_R), atol=1e-5)


def test_several_decisions_in_one_optimizer_step_are_separate_steps_of_the_ledger(build, ledger):
    config = {"steps_per_generation": 1, "gradient_accumulation_steps": 4, "per_device_train_batch_size": 8}
    trained(build(max_steps=2, **config), ledger=ledger)
    log = ba.Ledger.read(ledger)
    assert set(log.frame.step.tolist()) == set(range(8))
    assert set(log.frame.get("trainer_step", log.frame.step).tolist()) == {0, 1}
    for step in range(8):
        here = log.frame.step.to_numpy() == step
        names = np.array(log.frame.prompt.tolist())[here]
        assert here.sum() == 8
        assert log.frame.groupby(["step", "prompt"]).prompt.transform("size").to_numpy()[here].tolist() == [
            int((names == name).sum()) for name in names
        ]
