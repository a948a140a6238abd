"""Published bandits over domains: the scores of their policies, one arm at a time for ADEPT, and their states."""

import json

import numpy as np
import pytest

from budgetalloc import StateError, policies
from budgetalloc.policies.mixture_bandits import Published
from budgetalloc.policies.mixture_rules import DomainStep
from budgetalloc.policies.published.which_prompts.categories import upper_bounds

NOTHING = np.zeros(0)


def step_of(place_R, size_R):
    """A step of rollouts with these domains and absolute advantages."""
    return DomainStep(np.zeros(0, dtype=int), *[NOTHING] * 4, np.array(place_R), *[NOTHING] * 5, np.array(size_R))


def observed(policy, rule, steps=4):
    """The same groups for a published policy and for the rule, whose gains are the policy's mean |advantage|."""
    rng = np.random.default_rng(3)
    for _ in range(steps):
        success = rng.random((6, 8)) < np.repeat([0.9, 0.5, 0.1], 2)[:, None]
        policy.observe(np.repeat([f"{'abc'[k // 2]}{k}" for k in range(6)], 8).tolist(), success.ravel().astype(int))
        share = success.mean(axis=1)
        rule.observe(step_of(np.repeat([0, 1, 2], 16), np.repeat(2 * np.sqrt(share * (1 - share)), 8)))
    return policy.memory.numbers


def test_dump_and_sec_have_the_scores_of_their_policies():
    numbers = observed(policies.sec(domain_of=lambda x: x[0]), rule := Published("sec", 3))
    score_D = np.array([numbers[f"q:{c}"] for c in "abc"])
    np.testing.assert_allclose(rule.described()["score"], score_D, rtol=1e-12)
    np.testing.assert_allclose(rule.weights_D(), np.exp(score_D / 0.4) / np.exp(score_D / 0.4).sum())
    numbers = observed(policies.dump(domain_of=lambda x: x[0]), rule := Published("dump", 3))
    score_D = upper_bounds(*([numbers[f"{key}:{c}"] for c in "abc"] for key in ("q", "n")), numbers["n"])
    np.testing.assert_allclose(rule.described()["score"], score_D, rtol=1e-12)
    np.testing.assert_allclose(rule.weights_D(), np.exp(score_D / 0.1) / np.exp(score_D / 0.1).sum())


def test_adept_gives_all_to_one_domain_and_tries_each_first():
    rule, chosen, gain = Published("adept", 3), [], [0.1, 0.9, 0.0]
    for _ in range(60):
        weight_D = rule.weights_D()
        assert sorted(weight_D) == [0, 0, 1]
        chosen.append(int(np.argmax(weight_D)))
        rule.observe(step_of([chosen[-1]] * 9 + [2], [gain[chosen[-1]]] * 9 + [0.5]))
    assert chosen[:3] == [0, 1, 2]
    assert chosen.count(1) > 30


@pytest.mark.parametrize("name", ["dump", "sec", "adept"])
def test_a_restored_rule_goes_on_to_the_bit(name):
    one, other, rng = Published(name, 3), Published(name, 3), np.random.default_rng(0)
    for _ in range(10):
        one.observe(step_of(rng.integers(0, 3, 40), rng.random(40)))
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for _ in range(10):
        seen = step_of(rng.integers(0, 2, 40), rng.random(40))
        one.observe(seen)
        other.observe(seen)
    np.testing.assert_array_equal(one.weights_D(), other.weights_D())


@pytest.mark.parametrize("change", [{"numbers": 5}, {"numbers": {"q:0": float("nan")}}, {"bandit": {}}])
def test_a_damaged_rule_changes_nothing(change):
    rule = Published("sec", 3)
    rule.observe(step_of([0, 1, 2], [0.1, 0.2, 0.3]))
    before = rule.state_dict()
    with pytest.raises(StateError, match="damaged"):
        rule.load_state_dict(before | change)
    assert rule.state_dict() == before
