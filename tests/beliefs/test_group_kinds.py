"""Kinds of groups, against their definition in the glossary by brute force."""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.beliefs.rewards import KINDS, group_kinds

rollouts = st.tuples(st.integers(0, 3), st.sampled_from([-1.0, 0.2, 1.0, np.nan]), st.sampled_from([0.0, 0.5, 1.0]))


def by_definition(rows):
    """The kind and the scored rollouts of each group."""
    groups = defaultdict(list)
    for group, reward, success in rows:
        if reward == reward:
            groups[group].append((reward, success))
    kinds = {}
    for group, scored in groups.items():
        rewards, successes = map(set, zip(*scored, strict=True))
        if len(scored) == 1:
            kinds[group] = "single", 1
        elif len(rewards) > 1:
            kinds[group] = "mixed", len(scored)
        else:
            kind = "all_fail" if successes == {0.0} else "all_pass" if successes == {1.0} else "tied"
            kinds[group] = kind, len(scored)
    return kinds


@given(st.lists(rollouts, max_size=12))
def test_kinds_are_those_of_the_definition(rows):
    group_R, rewards_R, success_R = (np.array(x) for x in zip(*rows, strict=True)) if rows else (np.zeros(0),) * 3
    expected = by_definition(rows)
    kind_G, rollouts_G = group_kinds(rewards_R, success_R, group_R.astype(int), 4)
    assert {g: (KINDS[k], n) for g, (k, n) in enumerate(zip(kind_G, rollouts_G, strict=True)) if n} == expected
    assert (kind_G == -1).tolist() == [group not in expected for group in range(4)]


def test_rewards_equal_up_to_float32_are_equal():
    rewards_R = np.array([0.2, np.float32(0.2), 1000.0, 1000.0005])
    kind_G, _ = group_kinds(rewards_R, [1.0, 1.0, 0.0, 0.0], np.array([0, 0, 1, 1]), 2)
    assert [KINDS[kind] for kind in kind_G] == ["all_pass", "all_fail"]


def test_every_kind_is_in_the_glossary():
    text = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
    for kind in KINDS:
        assert re.search(rf"\*\*{kind.replace('_', ' ')}( rollout)?\*\*", text), kind
