"""DART: fewer rollouts for easy prompts."""

from policy_steps import observe

from budgetalloc import Budget
from budgetalloc.methods.dart import dart


def test_dart_reduces_prompts_that_pass_more_than_60_percent():
    policy = dart()
    observe(policy, {"sixty": 0.6, "more": 0.75, "never": 0.0}, group=40)
    assert policy.allocate(["sixty", "more", "never", "cold"], Budget(28)).tolist() == [8, 4, 8, 8]


def test_dart_takes_exactly_the_threshold_for_not_easy():
    policy = dart(easy=0.5)
    assert policy.allocate(["cold a", "cold b"], Budget(16)).tolist() == [8, 8]
    policy.observe(["up"], [1.0])
    assert policy.allocate(["up", "cold"], Budget(12)).tolist() == [4, 8]


def test_dart_gives_what_it_saves_to_further_prompts():
    policy, ids = dart(), list(range(100))
    assert (policy.allocate(ids, Budget(160, floor=0)) > 0).sum() == 20
    observe(policy, dict.fromkeys(ids, 1.0))
    counts = policy.allocate(ids, Budget(160, floor=0))
    assert (counts > 0).sum() == 40
    assert counts.max() == 4


def test_dart_shares_a_batch_in_proportion_under_a_floor():
    policy = dart()
    observe(policy, {"easy": 1.0, "hard": 0.0})
    assert policy.allocate(["easy", "hard"], Budget(36)).tolist() == [12, 24]
