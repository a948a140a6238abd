"""Rewards of sets: by going through all sets, and as the advantages of a step."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError
from budgetalloc.contrib.set_rewards import polychromic_rewards

ROLLOUTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([1, 2, 3]), st.floats(-2, 2)), min_size=1, max_size=12
)


def brute_force(rollouts, size):
    """The mean score of the sets of a group that contain each rollout."""
    found = np.zeros(len(rollouts))
    for name in {name for name, _, _ in rollouts}:
        group = [at for at, (own, _, _) in enumerate(rollouts) if own == name]
        scores = {at: [] for at in group}
        for chosen in combinations(group, min(size, len(group))):
            mean = np.mean([rollouts[at][2] for at in chosen])
            share = len({rollouts[at][1] for at in chosen}) / len(chosen)
            for at in chosen:
                scores[at].append(mean * share)
        for at in group:
            found[at] = np.mean(scores[at])
    return found


@given(ROLLOUTS, st.integers(2, 5))
def test_a_rollout_gets_the_mean_score_of_its_sets(rollouts, size):
    ids, kinds, rewards = zip(*rollouts, strict=True)
    found = polychromic_rewards(rewards, kinds, ids, size=size)
    np.testing.assert_allclose(found, brute_force(rollouts, size), atol=1e-12)


def test_a_failed_rollout_of_a_rare_kind_is_reinforced():
    """Seven successes of one kind, and two failures: of that kind, and of another."""
    rewards, kinds = [1.0] * 7 + [0.0, 0.0], ["usual"] * 8 + ["rare"]
    shared = polychromic_rewards(rewards, kinds, ["a"] * 9, size=3)
    advantages = ba.group_advantages(shared, ["a"] * 9)
    assert advantages[-1] > 1 > 0 > advantages[-2]
    assert (ba.group_advantages(rewards, ["a"] * 9)[-2:] < 0).all()


def test_a_group_that_is_one_set_has_no_gradient():
    shared = polychromic_rewards([1, 0, 0, 1], [1, 2, 3, 1], ["a"] * 4, size=4)
    assert not ba.group_advantages(shared, ["a"] * 4).any()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([1, 0], ["x"], ["a", "a"], 2), r"rewards_R has shape \(2,\), kinds_R 1 and ids_R 2"),
        (([1, float("nan")], ["x", "y"], ["a", "a"], 2), "rewards_R"),
        (([1, 0], ["x", "y"], ["a", "a"], 1), "size=1"),
    ],
)
def test_refusals(given, said):
    *arrays, size = given
    with pytest.raises(InputError, match=said):
        polychromic_rewards(*arrays, size=size)
