"""REINFORCE++ against the lines of verl."""

import numpy as np
import pytest

from budgetalloc import Budget, group_advantages
from budgetalloc.methods.reinforce_pp import reinforce_pp


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


def test_every_prompt_comes_once_an_epoch_in_groups_of_one():
    policy = reinforce_pp(seed=2)
    met = []
    for _ in range(3):
        counts_P = policy.allocate(list("abcdef"), Budget(rollouts=2, floor=0, min_group=1))
        ids = [x for x, n in zip("abcdef", counts_P, strict=True) if n]
        policy.observe(ids, [0, 1])
        met += ids
    assert sorted(met) == list("abcdef")
