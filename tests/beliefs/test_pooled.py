"""What is learned from all prompts together, at sizes that no estimator of a test has."""

import numpy as np

from budgetalloc.beliefs.pooled import _sum


def test_a_sum_over_more_prompts_than_63_bits_hold_does_not_overflow():
    """Findings A14: above 2^23 prompts the sum of integers of 2^-40 was negative."""
    assert _sum(np.ones(9_000_000)) == 9_000_000
    assert _sum(np.zeros(0)) == 0


def test_a_sum_over_several_slices_does_not_depend_on_the_order():
    shares_P = np.random.default_rng(0).random(5_000_000)
    assert _sum(shares_P) == _sum(shares_P[::-1])
