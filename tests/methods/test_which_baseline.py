"""Methods with a baseline of their own against their definitions and the code of others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_step import advantages_of_step

from budgetalloc import Budget, group_advantages
from budgetalloc.methods import a_star_po, ebpo, reinforce_pp

ONE = Budget(rollouts=1, floor=0, min_group=1)


@given(rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=12), beta=st.floats(0.05, 20))
def test_the_baseline_is_the_soft_mean_of_the_rewards_before_training_and_fixed(rewards, beta):
    """V* = beta log mean_i exp(r_i / beta), as `ZhaolinGao/A-PO` computes it."""
    expected = beta * np.log(np.mean(np.exp(np.array(rewards) / beta)))
    policy = a_star_po(beta=beta, offline={"a": (sum(rewards), len(rewards))})
    for reward in (1, 0, 1):
        step = policy.begin(["a", "new"], ONE)
        assert step.expected_success(["a", "new"], [reward, 0]) == pytest.approx([expected, 0.5], abs=1e-9)
        policy.observe(["a"], [reward])


def test_what_was_measured_is_not_trained_on_and_stays():
    policy = a_star_po(offline=4)
    step = policy.begin(["a"], Budget(rollouts=4, floor=0, min_group=1))
    assert step.request().tolist() == [4]
    step.observe(["a"] * 4, [1, 0, 0, 0])
    assert np.isnan(step.expected_success(["a"] * 4, [1, 0, 0, 0])).all()
    step.end()
    for _ in range(3):
        value = policy.begin(["a"], ONE).expected_success(["a"], [1])
        assert value == pytest.approx(0.5 * np.log(3 / 4 + np.exp(2) / 4))
        policy.observe(["a"], [1])


def verl(rewards_R, lengths_R):
    """`compute_reinforce_plus_plus_outcome_advantage` with gamma 1, and its `masked_whiten`, on rows of tokens."""
    width = max(lengths_R)
    mask = np.arange(width) < np.array(lengths_R)[:, None]
    token_level = np.zeros(mask.shape)
    token_level[np.arange(len(lengths_R)), np.array(lengths_R) - 1] = rewards_R  # on the last token
    returns, running = np.zeros(mask.shape), np.zeros(len(lengths_R))
    for t in reversed(range(width)):
        running = token_level[:, t] + running
        returns[:, t] = running
        running = running * mask[:, t]
    mean = returns[mask].mean()
    variance = ((returns[mask] - mean) ** 2).mean() * mask.sum() / (mask.sum() - 1)
    return (returns - mean) / np.sqrt(variance + 1e-8) * mask


def test_advantages_are_those_of_verl():
    rng = np.random.default_rng(0)
    for _ in range(20):
        rewards_R, lengths_R = rng.integers(0, 2, 12).astype(float), rng.integers(1, 9, 12)
        rewards_R[0], rewards_R[1] = 0, 1
        needs = reinforce_pp().needs
        ours = group_advantages(rewards_R, range(12), needs.baseline, needs.scale, lengths_R=lengths_R)
        assert ours == pytest.approx(verl(rewards_R, lengths_R)[:, 0], rel=1e-3)


SUCCESS = st.sampled_from([0.0, 1.0, 0.25])
GROUPS = st.dictionaries(st.sampled_from("abcd"), st.lists(SUCCESS, min_size=1, max_size=5), min_size=1, max_size=4)


def algorithm_1(steps):
    """The baseline of each rollout of the last step: all rewards and all group means of the run, this step included."""
    rewards = np.array([r for groups in steps for rs in groups.values() for r in rs])
    means = np.array([np.mean(rs) for groups in steps for rs in groups.values()])
    s2 = rewards.var(ddof=1) if len(rewards) > 1 else 0.0
    t2 = means.var(ddof=1) if len(means) > 1 else 0.0
    baseline = []
    for rs in steps[-1].values():
        share = 0.0 if s2 / len(rs) + t2 == 0 else s2 / len(rs) / (s2 / len(rs) + t2)
        baseline += [(1 - share) * np.mean(rs) + share * rewards.mean()] * len(rs)
    return baseline


@given(steps=st.lists(GROUPS, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_the_baseline_is_that_of_algorithm_1(steps):
    policy = ebpo()
    for groups in steps:
        ids_R, success_R = [x for x, rs in groups.items() for _ in rs], [r for rs in groups.values() for r in rs]
        step = policy.begin(list("abcd"), Budget(rollouts=8))  # groups of any sizes: nothing is requested
        step.observe(ids_R, success_R)
        expected_R = step.expected_success(ids_R, success_R)
        step.end()
    assert expected_R == pytest.approx(algorithm_1(steps), abs=1e-9)


def test_a_group_that_fails_is_punished_by_what_the_run_earns():
    """The paper's theorem 1: where GRPO has no gradient, the advantage is -S mu before it is centred."""
    policy = ebpo()
    policy.observe(["x"] * 4 + ["y"] * 4, [1, 1, 1, 0, 0, 1, 0, 0])
    step = policy.begin(["a", "b"], Budget(rollouts=8))
    ids_R, success_R = ["a"] * 4 + ["b"] * 4, [0.0] * 4 + [1.0, 0.0, 1.0, 1.0]
    expected_R = step.expected_success(ids_R, success_R)
    assert 0 < expected_R[0] < 7 / 16
    got = advantages_of_step(success_R, ids_R, "policy", "whiten", expected_R=expected_R)
    assert (got[:4] < -0.01).all()
    assert got.mean() == pytest.approx(0, abs=1e-9)
