"""MoPPS: its update, and the draws that it takes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.mopps import mopps

NAN = float("nan")


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=6), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_mopps_keeps_its_own_update(visits, keep):
    policy, alpha, beta = mopps(discount=keep), 1.0, 1.0
    for passed, failed in visits:
        policy.observe(["x"] * (passed + failed) + ["other"], [1.0] * passed + [0.0] * failed + [1.0])
        if passed + failed:
            alpha = keep * alpha + (1 - keep) * 1.0 + passed
            beta = keep * beta + (1 - keep) * 1.0 + failed
    belief = policy.belief(["x"])
    np.testing.assert_allclose([belief.alpha_P[0], belief.beta_P[0]], [alpha, beta], rtol=1e-12)


@pytest.mark.parametrize("target", [0.0, 0.3, 0.5, 1.0])
def test_mopps_takes_the_draws_with_the_smallest_square(target):
    policy = mopps(target=target, seed=3)
    policy.observe(np.repeat(np.arange(30), 8), np.random.default_rng(0).random(240) < np.repeat(np.arange(30) / 30, 8))
    step = policy.begin(list(range(30)), Budget(40, floor=0))
    view, again = step._view(), step._view()
    square_P = (view.belief_P.sample(view.rng).mean - target) ** 2
    best = {again.ids_P[at] for at in np.argsort(square_P)[:5]}
    assert set(np.flatnonzero(step.request()).tolist()) == best


def test_mopps_graded_rewards_count_in_part_and_nan_not_at_all():
    policy = mopps()
    policy.observe(["x", "x", "x", "y"], [0.25, 0.75, NAN, NAN])
    belief = policy.belief(["x", "y"])
    assert (belief.alpha_P.tolist(), belief.beta_P.tolist()) == ([2.0, 1.0], [2.0, 1.0])
