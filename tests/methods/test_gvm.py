"""GVM: the weights of the formula, and counts by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_steps import seen, splits

from budgetalloc import Budget, InputError
from budgetalloc.methods.gvm import gvm, gvm_weights


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


def test_gvm_counts_are_the_papers_shares_to_within_a_rollout():
    policy = seen(gvm(), np.linspace(0.1, 1, 10))
    weights_P = weights(policy.belief(range(10)).mean)
    shares_P = 400 * weights_P / weights_P.sum()
    counts_P = policy.allocate(range(10), Budget(400))
    assert np.abs(counts_P - shares_P).max() < 1
    assert (np.diff(counts_P) <= 0).all()


def test_gvm_asks_for_the_norms_of_prompts():
    with pytest.raises(InputError, match=r"norm_of\('bad'\) = -1.0"):
        gvm(norm_of=lambda x: -1.0 if x == "bad" else 1.0).allocate(["good", "bad"], Budget(8))
    counts_P = gvm(norm_of=lambda x: 3.0 if x == "steep" else 1.0).allocate(["flat", "steep"], Budget(40))
    assert counts_P.tolist() == [10, 30]  # exact: in proportion to the norms
