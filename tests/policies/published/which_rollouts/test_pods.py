"""PODS and D3S, and beside them CPPO: rows inside each group, and over the whole batch."""

import numpy as np

from budgetalloc.policies.published.which_rollouts.cppo import cppo
from budgetalloc.policies.published.which_rollouts.pods import d3s, pods


def step(groups):
    """Ids and rewards of groups given as (successes, failures)."""
    ids = [at for at, n in enumerate(groups) for _ in range(sum(n))]
    return ids, np.array([x for wins, losses in groups for x in [1.0] * wins + [0.0] * losses])


def kept_of(policy, groups, rows, scores_RF=None):
    """The (successes, failures) kept of each group."""
    ids, rewards = step(groups)
    kept = policy.keep(ids, rewards, rows, scores_RF)
    return [
        (sum(ids[k] == at and rewards[k] == 1 for k in kept), sum(ids[k] == at and rewards[k] == 0 for k in kept))
        for at in range(len(groups))
    ]


GROUPS = [(1, 7), (4, 4), (8, 0), (0, 8)]


def test_inside_groups_every_group_keeps_its_share():
    assert kept_of(pods(), GROUPS, 16) == [(1, 3), (2, 2), (4, 0), (0, 4)]
    assert kept_of(cppo(), GROUPS, 8) == [(1, 1), (2, 0), (2, 0), (0, 2)]


def test_across_groups_only_mixed_groups_are_kept():
    kept = kept_of(d3s(), GROUPS, 8)
    assert kept[0][0] == 1
    assert kept[2:] == [(0, 0), (0, 0)]
