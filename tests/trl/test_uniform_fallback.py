"""Runs with wrong beliefs or rewards: groups become uniform, and the policy decides again once they have healed."""

import pytest
from conftest import logged, rows, same_weights, trained, weights

import budgetalloc as ba


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr("budgetalloc.training.uniform_fallback._FALLEN", 3)
    monkeypatch.setattr("budgetalloc.training.uniform_fallback._HEALED", 3)
    monkeypatch.setattr("budgetalloc.training.uniform_fallback._KEPT", 0.5)


def by_prompt(prompts, completions, **_):
    """Odd prompts always succeed, even ones never."""
    return [float(int(prompt[:3]) % 2) for prompt in prompts]


def run(build, policy, steps, reward=by_prompt, **options):
    return trained(build(rows(9), reward=reward, max_steps=steps), policy, **options)


def of_steps(callback, name):
    return logged(callback.trainer, f"budgetalloc/{name}")


def wrong_beliefs():
    """Firm, and the opposite of the truth. They fade within some steps."""
    policy = ba.adaptive(seed=0)
    for _ in range(3):
        policy.observe([n for n in range(9) for _ in range(4)], [float(n % 2 == 0) for n in range(9) for _ in range(4)])
    return policy


def test_wrong_beliefs_fall_back_to_uniform_groups_and_come_back(build, caplog, soon):
    callback = run(build, wrong_beliefs(), 30, fallback=True, min_group=2)
    fallen = of_steps(callback, "fallback")
    assert fallen[:3] == [0.0, 0.0, 0.0]
    assert 1.0 in fallen[3:9]
    assert fallen[-1] == 0.0
    assert "From now on groups are uniform" in caplog.text
    assert "the policy decides again" in caplog.text
    for at, is_fallen in enumerate(fallen):
        if is_fallen:  # groups of num_generations with their mean as the baseline: equal rewards give no gradient
            assert of_steps(callback, "count/min")[at] == of_steps(callback, "count/max")[at] == 4
            assert of_steps(callback, "advantage/frac_nonzero")[at] == 0.0


@pytest.mark.parametrize("policy", [ba.adaptive, lambda: ba.adaptive(explore=1, rounds=3)])
def test_in_a_small_pool_the_model_is_that_of_plain_grpo_to_the_bit(build, policy, caplog):
    """8 prompts for 16 rollouts a step: two for each."""
    ended = []
    for chosen, options in ((policy(), {}), (ba.uniform(), {}), (policy(), {"fallback": False})):
        trainer = build(rows(8), reward=by_length, max_steps=5)
        trained(trainer, chosen, **options)
        ended.append(weights(trainer.model))
    assert same_weights(ended[0], ended[1])
    assert not same_weights(ended[2], ended[1])
    assert caplog.text.count("8 prompts for 16 rollouts a step") == 1


def by_length(completions, **_):
    return [float(len(text.strip("0")) > 2) for text in completions]
