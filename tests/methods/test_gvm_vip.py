"""GVM and VIP: weights and variances by enumeration, and counts by brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_steps import seen, splits

from budgetalloc import Beta, Budget, InputError
from budgetalloc.methods.gvm import gvm, gvm_weights
from budgetalloc.methods.vip import gradient_variance, variance_reduction, vip


def weights(p_P, norm_P=1.0, alpha=1e-3, beta=2.0):
    return gvm_weights(np.array(p_P), norm_P, alpha, beta)


def test_gvm_weights_of_the_formula():
    """Exact: 1 / sqrt(1/4 + 0.004) and, with beta = 3, 2 / sqrt(1/2 + 0.004)."""
    assert weights([0.25])[0] == pytest.approx(0.254**-0.5, rel=1e-15)
    assert weights([0.5], 2.0, beta=3.0)[0] == pytest.approx(2 * 0.504**-0.5, rel=1e-15)
    assert weights([0.25, 1.0, 0.0], alpha=0.0).tolist() == [2.0, 1.0, 0.0]


@given(st.lists(st.integers(0, 10), min_size=3, max_size=3), st.integers(0, 12))
@settings(deadline=None, max_examples=40)
def test_gvm_equals_brute_force(tenths, more):
    norms = {0: 1.0, 1: 0.5, 2: 3.0}
    policy = seen(gvm(norm_of=norms.__getitem__), [k / 10 for k in tenths])
    squares_P = weights(policy.belief(range(3)).mean, list(norms.values())) ** 2
    best = min(float(squares_P @ (1 / c)) for c in splits(6 + more, 2, 9, 3))
    counts_P = policy.allocate(range(3), Budget(6 + more, floor=2, cap=9))
    assert squares_P @ (1 / counts_P) == pytest.approx(best, rel=1e-12)


def test_gvm_asks_for_the_norms_of_prompts():
    with pytest.raises(InputError, match=r"norm_of\('bad'\) = -1.0"):
        gvm(norm_of=lambda x: -1.0 if x == "bad" else 1.0).allocate(["good", "bad"], Budget(8))
    counts_P = gvm(norm_of=lambda x: 3.0 if x == "steep" else 1.0).allocate(["flat", "steep"], Budget(40))
    assert counts_P.tolist() == [10, 30]  # exact: in proportion to the norms


FORMS = ["rloo", "dr_grpo"]


RATES = [0.03, 0.2, 0.5, 0.9]


def advantages(rewards, form):
    n = len(rewards)
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
        advantage = advantages(np.array(rewards), form)
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
    st.sampled_from([("rloo", 2), ("dr_grpo", 3)]),
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
