"""DAPO: new prompts until the mixed groups fill the batch."""

import numpy as np
import pytest

from budgetalloc import Budget, InputError
from budgetalloc.policies.published.in_rounds.dapo import dapo


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


def test_dapo_stops_when_the_mixed_groups_fill_the_batch_and_never_before():
    ids = list(range(200))
    graded, _ = play(dapo(seed=0), ids, Budget(768, floor=0), dict.fromkeys(ids, 0.5))
    assert graded.shape[0] <= 2
    hopeless, _ = play(dapo(seed=0), ids, Budget(768, floor=0), dict.fromkeys(ids, 0.0))
    assert hopeless.shape[0] == 3
    assert hopeless.sum() == 768
    assert hopeless.sum(axis=0).max() == 8  # always new prompts


def test_thompson_dapo_tries_promising_prompts_first():
    policy = dapo(order="thompson", generate=2, discount=1.0, idle=1.0, seed=0)
    for _ in range(20):
        policy.observe(["solved"] * 8 + ["third"] * 9, [1] * 8 + [1, 0, 0] * 3)
    first = policy.begin(["solved", "third"], Budget(16, floor=0)).request()
    assert first.tolist() == [0, 8]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: dapo(generate=0), "generate=0"),
        (lambda: dapo(order="best"), "order='best'"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
