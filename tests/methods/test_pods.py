"""PODS, CPPO and D3S: rows inside each group, and over the whole batch."""

from policy_steps import kept_of

from budgetalloc.methods.cppo import cppo
from budgetalloc.methods.pods import d3s, pods


def test_inside_groups_every_group_keeps_its_share():
    assert kept_of(pods(), 16) == [(1, 3), (2, 2), (4, 0), (0, 4)]
    assert kept_of(cppo(), 8) == [(1, 1), (2, 0), (2, 0), (0, 2)]


def test_across_groups_only_mixed_groups_are_kept():
    assert kept_of(d3s(), 8) == [(1, 0), (3, 4), (0, 0), (0, 0)]
