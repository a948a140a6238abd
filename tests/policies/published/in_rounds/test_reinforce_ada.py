"""Reinforce-Ada: quotas of successes and failures."""

import numpy as np
import pytest

from budgetalloc import Budget, InputError
from budgetalloc.policies.published.in_rounds.reinforce_ada import reinforce_ada


def play(policy, ids, budget, rates, seed=0):
    """One step against prompts of known rates: the counts of each round, and the rewards."""
    rng = np.random.default_rng(seed)
    step = policy.begin(ids, budget)
    counts, rewards = [], []
    while (counts_P := step.request()).any():
        ids_R = [x for x, n in zip(ids, counts_P.tolist(), strict=True) for _ in range(n)]
        rewards_R = (rng.random(len(ids_R)) < np.array([rates[x] for x in ids_R])).astype(float)
        step.observe(ids_R, rewards_R)
        counts.append(counts_P)
        rewards.append(rewards_R)
    step.end()
    return np.array(counts).reshape(-1, len(ids)), rewards


def test_reinforce_ada_goes_on_until_both_quotas_are_met():
    ids = ["never", "half", "always"]
    rates = {"never": 0.0, "half": 0.5, "always": 1.0}
    counts, _ = play(reinforce_ada(group=8, stages=4, seed=0), ids, Budget(96, floor=2), rates)
    total = dict(zip(ids, counts.sum(axis=0).tolist(), strict=True))
    assert total["never"] == total["always"] == 32
    assert total["half"] in (8, 16, 24)


def test_reinforce_ada_of_successes_stops_at_the_first_success():
    rates = {"never": 0.0, "half": 0.5, "always": 1.0}
    counts, _ = play(reinforce_ada(quota="positive", seed=0), list(rates), Budget(96, floor=2), rates)
    assert counts.sum(axis=0).tolist() == [32, 8, 8]  # one round of 8 at rate 1/2 has no success once in 256


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: reinforce_ada(stages=0), "stages=0"),
        (lambda: reinforce_ada(quota="any"), "quota='any'"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
