"""VIP: variances by enumeration, and counts by brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_steps import seen, splits

from budgetalloc import Beta, Budget
from budgetalloc.methods.vip import gradient_variance, variance_reduction, vip

FORMS = ["neyman", "dr_grpo", "rloo"]


RATES = [0.03, 0.2, 0.5, 0.9]


def advantages(rewards, rate, form):
    n = len(rewards)
    if form == "neyman":
        return rewards - rate
    if form == "dr_grpo":
        return rewards - rewards.mean()
    return rewards - (rewards.sum() - rewards) / (n - 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("rate", RATES)
def test_the_variance_is_that_of_all_groups_and_scores_enumerated(form, n, rate):
    """Every group of rewards, and every score of +1 or -1 (mean 0, variance 1, independent of the reward)."""
    mean = square = 0.0
    for rewards in product([0.0, 1.0], repeat=n):
        chance = rate ** sum(rewards) * (1 - rate) ** (n - sum(rewards)) / 2**n
        advantage = advantages(np.array(rewards), rate, form)
        for scores in product([-1.0, 1.0], repeat=n):
            estimate = np.mean(advantage * np.array(scores))
            mean += chance * estimate
            square += chance * estimate**2
    exact = rate * (1 - rate) * gradient_variance([n], form)[0]
    assert square - mean**2 == pytest.approx(exact, rel=1e-12)


@given(st.sampled_from(FORMS), st.lists(st.tuples(st.floats(0.01, 50), st.floats(0.01, 50)), min_size=1, max_size=5))
@settings(deadline=None, max_examples=30)
def test_the_value_is_0_without_a_gradient_and_never_falls(form, parameters):
    belief = Beta([a for a, _ in parameters], [b for _, b in parameters])
    values_PN = variance_reduction(form)(belief, np.arange(30))
    assert (values_PN[:, :2] == 0).all()
    assert (np.diff(values_PN) >= 0).all()
    assert (values_PN[:, 2] > 0).all()
    assert (np.diff(values_PN[:, 3:], 2) <= 1e-15).all()


@given(
    st.sampled_from([("neyman", 2), ("neyman", 1), ("rloo", 2), ("dr_grpo", 3)]),
    st.lists(st.integers(0, 10), min_size=3, max_size=3),
    st.integers(0, 9),
)
@settings(deadline=None, max_examples=40)
def test_vip_equals_brute_force_where_the_form_is_convex(form_and_floor, tenths, more):
    form, floor = form_and_floor
    policy = seen(vip(form=form), [k / 10 for k in tenths])
    budget = Budget(3 * floor + more, floor=floor, cap=9, min_group=floor)
    assume(budget.rollouts <= 27)
    variance_P = policy.belief(range(3)).moment(1, 1)

    def total(counts_P):
        return float(variance_P @ gradient_variance(counts_P, form))

    best = min(total(counts_P) for counts_P in splits(budget.rollouts, floor, 9, 3))
    assert total(policy.allocate(range(3), budget)) == pytest.approx(best, rel=1e-12)


@given(st.lists(st.integers(0, 10), min_size=3, max_size=3), st.integers(0, 12))
@settings(deadline=None, max_examples=40)
def test_dr_grpo_from_groups_of_two_is_within_a_block_of_the_best(tenths, more):
    policy = seen(vip(form="dr_grpo"), [k / 10 for k in tenths])
    variance_P = policy.belief(range(3)).moment(1, 1)
    totals = [variance_P @ gradient_variance(c, "dr_grpo") for c in splits(6 + more, 2, 9, 3)]
    got = variance_P @ gradient_variance(policy.allocate(range(3), Budget(6 + more, floor=2, cap=9)), "dr_grpo")
    assert got <= min(totals) + variance_P.max() * (1 / 4 - 3 / 16) + 1e-12


def test_vip_gives_in_proportion_to_the_deviation():
    """Exact: E[p(1-p)] of 1/4 and 1/16 (the prior is next to nothing), so deviations of 1/2 and 1/4."""
    policy = vip(prior=(1e-6, 1e-6), discount=1.0)
    policy.observe(["half"] * 10_000, [0, 1] * 5000)
    rate = (1 - np.sqrt(0.75)) / 2  # p(1-p) = 1/16
    policy.observe(["rare"] * 10_000, [1.0] * round(10_000 * rate) + [0.0] * (10_000 - round(10_000 * rate)))
    assert policy.allocate(["half", "rare"], Budget(96)).tolist() == [64, 32]


def test_vip_spends_tokens():
    policy = seen(vip(), [0.5, 0.5, 0.5])
    budget = Budget(None, tokens=100, floor=2, cap=40)
    counts_P = policy.allocate(range(3), budget, costs_P=[1.0, 1.0, 4.0])
    assert counts_P @ np.array([1.0, 1.0, 4.0]) <= 100
    assert counts_P[2] == pytest.approx(counts_P[0] / 2, abs=1)  # Neyman: 1 / sqrt(cost)
