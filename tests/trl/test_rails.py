"""Real runs with beliefs and rewards that were broken on purpose: groups become uniform, and the policy comes back."""

import re

import pytest
from conftest import low_digit, rows

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr("budgetalloc.training.rails._FALLEN", 3)
    monkeypatch.setattr("budgetalloc.training.rails._HEALED", 3)
    monkeypatch.setattr("budgetalloc.training.rails._KEPT", 0.5)


def by_prompt(prompts, completions, **_):
    """Odd prompts always succeed, even ones never."""
    return [float(int(prompt[:3]) % 2) for prompt in prompts]


def trained(build, reward, policy, steps, **options):
    trainer = build(rows(8), reward=reward or low_digit, max_steps=steps)
    callback = AdaptiveGRPOCallback(trainer, policy, **options)
    trainer.add_callback(callback)
    trainer.train()
    return trainer, callback


def of_steps(trainer, name):
    return [x[f"budgetalloc/{name}"] for x in trainer.state.log_history if f"budgetalloc/{name}" in x]


def wrong_beliefs():
    """Firm, and the opposite of what is so; they fade within some steps."""
    policy = ba.adaptive(seed=0)
    for _ in range(3):
        policy.observe([n for n in range(8) for _ in range(4)], [float(n % 2 == 0) for n in range(8) for _ in range(4)])
    return policy


def test_wrong_beliefs_fall_back_to_uniform_groups_and_come_back(build, caplog, soon):
    trainer, _ = trained(build, by_prompt, wrong_beliefs(), 30, fallback=True)
    fallen = of_steps(trainer, "fallback")
    assert fallen[:3] == [0.0, 0.0, 0.0]
    assert fallen[3] == 1.0
    assert fallen[-1] == 0.0
    assert "From now on groups are uniform" in caplog.text
    assert "the policy decides again" in caplog.text
    for at, is_fallen in enumerate(fallen):
        if is_fallen:  # groups of num_generations, with the mean of the group: equal rewards teach nothing
            assert of_steps(trainer, "count/min")[at] == of_steps(trainer, "count/max")[at] == 4
            assert of_steps(trainer, "advantage/frac_nonzero")[at] == 0.0


def test_without_fallback_the_policy_goes_on(build, caplog, soon):
    trainer, _ = trained(build, by_prompt, wrong_beliefs(), 6, fallback=False)
    assert of_steps(trainer, "fallback") == [0.0] * 6
    assert "uniform" not in caplog.text


def test_advantages_that_lean_fall_back(build, caplog, soon):
    """Seven of eight rollouts pass, and the policy holds firmly that none does."""

    def mostly(completions, **_):
        return [float(at % 8 > 0) for at in range(len(completions))]

    policy = ba.adaptive(seed=0)
    policy.observe([n for n in range(8) for _ in range(100)], [0.0] * 800)
    trainer, _ = trained(build, mostly, policy, 8)
    assert max(of_steps(trainer, "advantage/lean")) > 0.9
    assert of_steps(trainer, "fallback") == [0.0] * 3 + [1.0] * 5
    assert re.search("because this lasts: beliefs, lean", caplog.text)


def test_rewards_whose_size_jumps_fall_back(build, caplog):
    """A thousand times the range that was given, from the sixth step on."""
    seen = []

    def jumping(completions, **_):
        seen.append(1)
        size = 1000.0 if len(seen) > 5 else 1.0
        return [size * (text[:1] < "5") for text in completions]

    trainer, _ = trained(build, jumping, ba.adaptive(seed=0), 60, reward_range=(0.0, 1.0))
    assert max(of_steps(trainer, "advantage/rms")) <= 5.0  # no advantage is larger than that
    fallen = of_steps(trainer, "fallback")
    assert set(fallen[:35]) == {0.0}
    assert fallen[-1] == 1.0
    assert "because this lasts: size" in caplog.text


def test_a_healthy_run_is_left_alone(build, caplog):
    """Prompts differ as the beliefs say that they may: some always pass, the others never."""
    trainer, callback = trained(build, by_prompt, ba.adaptive(seed=0), 60)
    assert of_steps(trainer, "fallback") == [0.0] * 60
    assert callback.scoring.rails.fallen is False
    assert not re.search("uniform", caplog.text)


def test_uniform_has_no_rails(build):
    trainer, callback = trained(build, None, ba.uniform(), 2)
    assert callback.scoring.rails is None
    assert of_steps(trainer, "fallback") == []
