"""Pilot-Commit: who is committed to."""

import numpy as np
import pytest

from budgetalloc import Budget, InputError
from budgetalloc.policies.published.in_rounds.pilot_commit import pilot_commit


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


def test_pilot_commit_commits_to_the_prompts_whose_pilots_varied():
    ids = list(range(64))
    rates = {k: [0.0, 0.5, 1.0, 0.5][k % 4] for k in ids}
    counts, _ = play(pilot_commit(pilot=4, group=16, seed=0), ids, Budget(256, floor=0), rates)
    assert counts.shape[0] == 2
    assert counts[0].sum() == 128
    assert set(counts[0].tolist()) == {0, 4}
    assert not counts[1][[k for k in ids if rates[k] != 0.5]].any()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: pilot_commit(pilot=1), "pilot=1"),
        (lambda: pilot_commit(share=1.0), "share=1.0"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
