"""Runs with wrong beliefs or rewards: groups become uniform, and the policy decides again once they have healed."""

import pytest
from conftest import logged, rows, trained

import budgetalloc as ba


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr("budgetalloc.training.rails._FALLEN", 3)
    monkeypatch.setattr("budgetalloc.training.rails._HEALED", 3)
    monkeypatch.setattr("budgetalloc.training.rails._KEPT", 0.5)


def by_prompt(prompts, completions, **_):
    """Odd prompts always succeed, even ones never."""
    return [float(int(prompt[:3]) % 2) for prompt in prompts]


def run(build, policy, steps, reward=by_prompt, **options):
    return trained(build(rows(8), reward=reward, max_steps=steps), policy, **options)


def of_steps(callback, name):
    return logged(callback.trainer, f"budgetalloc/{name}")


def wrong_beliefs():
    """Firm, and the opposite of the truth. They fade within some steps."""
    policy = ba.adaptive(seed=0)
    for _ in range(3):
        policy.observe([n for n in range(8) for _ in range(4)], [float(n % 2 == 0) for n in range(8) for _ in range(4)])
    return policy


def test_wrong_beliefs_fall_back_to_uniform_groups_and_come_back(build, caplog, soon):
    callback = run(build, wrong_beliefs(), 30, fallback=True)
    fallen = of_steps(callback, "fallback")
    assert fallen[:3] == [0.0, 0.0, 0.0]
    assert fallen[3] == 1.0
    assert fallen[-1] == 0.0
    assert "From now on groups are uniform" in caplog.text
    assert "the policy decides again" in caplog.text
    for at, is_fallen in enumerate(fallen):
        if is_fallen:  # groups of num_generations with their mean as the baseline: equal rewards give no gradient
            assert of_steps(callback, "count/min")[at] == of_steps(callback, "count/max")[at] == 4
            assert of_steps(callback, "advantage/frac_nonzero")[at] == 0.0


def test_without_fallback_the_policy_continues(build, caplog, soon):
    callback = run(build, wrong_beliefs(), 6, fallback=False)
    assert of_steps(callback, "fallback") == [0.0] * 6
    assert "uniform" not in caplog.text


def test_advantages_that_lean_fall_back(build, caplog, soon):
    """Seven of eight rollouts pass, and the policy firmly believes that none does."""

    def mostly(completions, **_):
        return [float(at % 8 > 0) for at in range(len(completions))]

    policy = ba.adaptive(seed=0)
    policy.observe([n for n in range(8) for _ in range(100)], [0.0] * 800)
    callback = run(build, policy, 8, mostly)
    assert max(of_steps(callback, "advantage/lean")) > 0.9
    assert of_steps(callback, "fallback") == [0.0] * 3 + [1.0] * 5
    assert "because this lasts: beliefs, lean" in caplog.text


def test_rewards_whose_size_jumps_fall_back(build, caplog):
    """To a thousand times the given range, from the sixth step on."""
    seen = []

    def jumping(completions, **_):
        seen.append(1)
        size = 1000.0 if len(seen) > 5 else 1.0
        return [size * (text[:1] < "5") for text in completions]

    callback = run(build, ba.adaptive(seed=0), 60, jumping, reward_range=(0.0, 1.0))
    assert max(of_steps(callback, "advantage/rms")) <= 5.0  # no advantage is larger than that
    fallen = of_steps(callback, "fallback")
    assert set(fallen[:35]) == {0.0}
    assert fallen[-1] == 1.0
    assert "because this lasts: size" in caplog.text


def test_a_healthy_run_never_falls_back(build, caplog):
    """Prompts differ no more than the beliefs expect: some always pass, the others never."""
    callback = run(build, ba.adaptive(seed=0), 60)
    assert of_steps(callback, "fallback") == [0.0] * 60
    assert callback.scoring.rails.fallen is False
    assert "uniform" not in caplog.text


def test_uniform_has_no_rails(build):
    callback = run(build, ba.uniform(), 2)
    assert callback.scoring.rails is None
    assert of_steps(callback, "fallback") == []
