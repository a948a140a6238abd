"""Methods that rank or draw prompts: their updates, and what they take."""

from collections import Counter
from dataclasses import replace
from math import prod, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_steps import believing, observe

from budgetalloc import Budget
from budgetalloc.methods import bbg, cures, mopps, prime_pools, vade


def test_vades_two_decays_give_the_numbers_of_its_figure():
    """Exact: 0.1 -> 1.02, 8.4 -> 8.68, 2.7 -> 4.54, 5.3 -> 5.06 where visited, 9.0 -> 8.991 where not.

    The figure prints 0.2 -> 1.998 for the last, which must be 0.1998.
    """
    policy = believing(vade(), {"a": (0.1, 8.4), "b": (2.7, 5.3), "c": (9.0, 0.2)})
    policy.observe(["a"] * 8 + ["b"] * 8, [1] + [0] * 7 + [0, 1] * 4)
    belief = policy.belief(["a", "b", "c"])
    np.testing.assert_allclose(belief.alpha_P - 1, [1.02, 4.54, 8.991], rtol=1e-12)
    np.testing.assert_allclose(belief.beta_P - 1, [8.68, 5.06, 0.1998], rtol=1e-12)


def test_vade_prefers_a_third_to_a_half():
    """p (1-p)^2 is 0.148 at 1/3, 0.125 at 1/2, 0.081 at 0.1; p (1-p) would take 1/2 first."""
    policy = believing(vade(), {"half": (5e6, 5e6), "third": (1e6, 2e6), "tenth": (1e6, 9e6)})
    names = ["half", "third", "tenth"]
    assert policy.allocate(names, Budget(8, floor=0)).tolist() == [0, 8, 0]
    assert policy.allocate(names, Budget(16, floor=0)).tolist() == [8, 8, 0]


def test_vade_takes_the_best_of_a_thompson_draw():
    """A cold prompt's draw beats 0.081, a rate of 0.1 known for sure, where p (1-p)^2 > 0.081: computed by a grid."""
    p = (np.arange(200_000) + 0.5) / 200_000
    expected = np.mean(p * (1 - p) ** 2 > 0.1 * 0.81)
    policy = believing(vade(idle=1.0), {"tenth": (1e8, 9e8)})
    n, cold = 1000, 0
    for _ in range(n):
        cold += policy.allocate(["tenth", "cold"], Budget(8, floor=0)).tolist() == [0, 8]
        policy.observe([], [])
    assert abs(cold / n - expected) < 4 * sqrt(expected * (1 - expected) / n)


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
    view, again = (step._view_of(step._shuffled, step._order_P) for _ in range(2))
    square_P = (view.belief_P.sample(view.rng).mean - target) ** 2
    best = {again.ids_P[at] for at in np.argsort(square_P)[:5]}
    assert set(np.flatnonzero(step.request()).tolist()) == best


def test_cures_counts_are_neymans():
    """Exact: deviations of 1/2 and sqrt(0.1 * 0.9) = 0.3 share 64 as 5 to 3; Beta(1, 1) is next to nothing."""
    policy = believing(cures(group=32, first=0), {"half": (5e7, 5e7), "tenth": (1e7, 9e7)})
    assert policy.allocate(["half", "tenth"], Budget(64)).tolist() == [40, 24]
    assert policy.allocate(["half", "tenth"], Budget(64, floor=0)).tolist() == [40, 24]


def test_cures_keeps_a_drawn_prompt_without_spread():
    """The released code drops a prompt that always or never passed; here it keeps the fewest."""
    policy = believing(cures(first=0), {"half": (5e3, 5e3), "solved": (1e6, 0), "hopeless": (0, 1e6)})
    counts_P = policy.allocate(["half", "solved", "hopeless"], Budget(24, floor=0))
    assert counts_P.tolist() == [16, 4, 4]


def test_cures_begins_with_four_rollouts_of_every_prompt_and_trains_on_none_of_them():
    policy, ids = cures(seed=0), list(range(8))
    for _ in range(2):
        step = policy.begin(ids, Budget(16, floor=0))
        ids_R = np.repeat(ids, step.request()).tolist()
        assert len(set(ids_R)) == 4
        assert np.isnan(step.expected_success(ids_R, [1.0] * 16)).all()
        step.observe(ids_R, [1.0] * 16)
        step.end()
    step = policy.begin(ids, Budget(16, floor=0))
    ids_R = np.repeat(ids, step.request()).tolist()
    assert not np.isnan(step.expected_success(ids_R, [1.0] * 16)).any()


@pytest.mark.parametrize(("k", "most"), [(16, 3), (256, 1)])
def test_bbg_passes_prompts_whose_success_adds_to_pass_at_k(k, most):
    """Equation 8, k prod_{j<k} (n - m + j) / (n + 1 + j), against equation 9's 0.01 (n + 1), for n = 8."""
    gains = [k * prod((8 - m + j) / (9 + j) for j in range(1, k)) for m in range(9)]
    passing = [m for m in range(9) if gains[m] >= 0.09]
    assert passing == list(range(most + 1))
    policy = observe(bbg(k=k, explore=0.0), dict.fromkeys(range(9), 1.0))  # only the last visit counts
    observe(policy, {m: m / 8 for m in range(9)})
    counts_P = policy.allocate(range(9), Budget(8 * len(passing), floor=0))
    assert np.flatnonzero(counts_P).tolist() == passing


MEANS = {"never": 0.0, "quarter": 0.25, "more": 0.375, "three": 0.75, "nearly": 0.875, "always": 1.0}
WEIGHTS = {"never": 0.2, "quarter": 0.2, "more": 1.0, "three": 1.0, "nearly": 0.2, "always": 0.2, "new": 1.0}


@pytest.mark.slow
def test_prompts_are_drawn_by_the_pool_of_their_last_mean():
    policy, drawn, n = prime_pools(), Counter(), 1000
    policy.observe(["always"] * 8, [0] * 8)  # what came before the last visit does not count
    for x, mean in MEANS.items():
        policy.observe([x] * 8, [1] * int(8 * mean) + [0] * int(8 - 8 * mean))
    for seed in range(n):
        counts_P = replace(policy, seed=seed).allocate(list(WEIGHTS), Budget(rollouts=8, floor=0))
        assert counts_P.max() == 8
        drawn[list(WEIGHTS)[int(np.argmax(counts_P))]] += 1
    total = sum(WEIGHTS.values())
    for x, weight in WEIGHTS.items():
        p = weight / total
        assert drawn[x] / n == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / n))
