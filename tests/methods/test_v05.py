"""V0.5: the fused baseline minimises its squared error, and a group grows while that is worth a rollout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_steps import play

from budgetalloc import Budget, StateError
from budgetalloc.methods import v05
from budgetalloc.testing import same_state


@given(wins=st.integers(0, 8), n=st.integers(8, 16))
def test_the_baseline_is_at_the_least_squared_error(wins, n):
    """min over w of w^2 / n + (1 - w)^2 d, on a grid; d is the squared error of the value 1/2 in rewards of -1, 1."""
    step = v05().begin(["a"], Budget(rollouts=n, floor=0))
    error = max(0, (2 * wins / n - 1) ** 2 - 1 / n)
    w = np.linspace(0, 1, 2001)
    best = w[np.argmin(w**2 / n + (1 - w) ** 2 * error)]
    got = step.expected_success(["a"] * n, [1.0] * wins + [0.0] * (n - wins))
    assert got == pytest.approx([best * wins / n + (1 - best) / 2] * n, abs=1e-3)


def test_a_group_that_agrees_with_the_belief_stops_and_another_grows():
    policy = v05()
    for _ in range(4):
        policy.observe([x for x in ("as before", "fell") for _ in range(8)], [1.0] * 16)
    rates = {"as before": 1.0, "fell": 0.0}
    counts, _ = play(policy, list(rates), Budget(rollouts=20, floor=4), rates)
    assert counts.sum(axis=0).tolist() == [4, 16]
    assert len(counts) == 13
    counts, _ = play(v05(more=4), ["new", "too"], Budget(rollouts=8, floor=4), {"new": 0.5, "too": 0.5})
    assert counts.sum(axis=0).tolist() == [4, 4]


def test_the_prior_of_a_small_pool_by_hand():
    """Two prompts and 16 at the start; E[p(1-p)] of Beta(a, b) is ab / (n (n + 1))."""
    policy = v05()
    policy.observe(["a"] * 8 + ["b"] * 8, [1] * 6 + [0] * 10)
    mean = (6.5 / 9 + 0.5 / 9 + 16 / 2) / 18
    within = (6.5 * 2.5 / 90 + 0.5 * 8.5 / 90 + 16 / 8) / 18
    mass = within / (mean * (1 - mean) - within)
    belief = policy.belief(["new", "a"])
    assert belief.alpha_P == pytest.approx([mean * mass, mean * mass + 6])
    assert belief.beta_P == pytest.approx([(1 - mean) * mass, (1 - mean) * mass + 2])


@pytest.mark.parametrize("damaged", [None, [0.5], [0.0, 1.0], [1.0, np.inf], ["x", 1.0]])
def test_a_damaged_prior_is_refused_and_changes_nothing(damaged):
    policy = v05()
    policy.observe(["a", "a"], [1, 0])
    before = policy.state_dict()
    with pytest.raises(StateError, match="PooledEstimator is damaged"):
        policy.load_state_dict({**v05().state_dict(), "prior_now": damaged})
    assert same_state(before, policy.state_dict())
