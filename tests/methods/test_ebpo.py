"""EBPO against its Algorithm 1, by brute force over the whole run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_step import advantages_of_step

from budgetalloc import Budget
from budgetalloc.methods.ebpo import ebpo

SUCCESS = st.sampled_from([0.0, 1.0, 0.25])
GROUPS = st.dictionaries(st.sampled_from("abcd"), st.lists(SUCCESS, min_size=1, max_size=5), min_size=1, max_size=4)


def algorithm_1(steps):
    """The baseline of each rollout of the last step: all rewards and all group means of the run, this step included."""
    rewards = np.array([r for groups in steps for rs in groups.values() for r in rs])
    means = np.array([np.mean(rs) for groups in steps for rs in groups.values()])
    s2 = rewards.var(ddof=1) if len(rewards) > 1 else 0.0
    t2 = means.var(ddof=1) if len(means) > 1 else 0.0
    baseline = []
    for rs in steps[-1].values():
        share = 0.0 if s2 / len(rs) + t2 == 0 else s2 / len(rs) / (s2 / len(rs) + t2)
        baseline += [(1 - share) * np.mean(rs) + share * rewards.mean()] * len(rs)
    return baseline


@given(steps=st.lists(GROUPS, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_the_baseline_is_that_of_algorithm_1(steps):
    policy = ebpo()
    for groups in steps:
        ids_R, success_R = [x for x, rs in groups.items() for _ in rs], [r for rs in groups.values() for r in rs]
        step = policy.begin(list("abcd"), Budget(rollouts=8))  # groups of any sizes: nothing is requested
        step.observe(ids_R, success_R)
        expected_R = step.expected_success(ids_R, success_R)
        step.end()
    assert expected_R == pytest.approx(algorithm_1(steps), abs=1e-9)


def test_a_group_that_fails_is_punished_by_what_the_run_earns():
    """The paper's theorem 1: where GRPO has no gradient, the advantage is -S mu before it is centred."""
    policy = ebpo()
    policy.observe(["x"] * 4 + ["y"] * 4, [1, 1, 1, 0, 0, 1, 0, 0])
    step = policy.begin(["a", "b"], Budget(rollouts=8))
    ids_R, success_R = ["a"] * 4 + ["b"] * 4, [0.0] * 4 + [1.0, 0.0, 1.0, 1.0]
    expected_R = step.expected_success(ids_R, success_R)
    assert 0 < expected_R[0] < 7 / 16
    got = advantages_of_step(success_R, ids_R, "policy", "whiten", expected_R=expected_R)
    assert (got[:4] < -0.01).all()
    assert got.mean() == pytest.approx(0, abs=1e-9)
