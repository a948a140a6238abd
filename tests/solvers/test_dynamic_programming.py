"""The dynamic program against enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetalloc.solvers.dynamic_programming import best_counts, work


@given(
    st.integers(1, 4),
    st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_the_counts_are_the_best_of_all_that_sum_to_the_rollouts(prompts, counts, unit, seed):
    rng, counts_N = np.random.default_rng(seed), unit * np.sort(counts)
    values_PN = rng.normal(size=(prompts, len(counts)))
    rollouts = int(rng.choice(counts_N, prompts).sum())  # a sum that can be spent
    best_P = best_counts(values_PN, counts_N, rollouts)
    assert best_P.sum() == rollouts
    every = [x for x in itertools.product(range(len(counts)), repeat=prompts) if counts_N[list(x)].sum() == rollouts]
    got = values_PN[np.arange(prompts), np.searchsorted(counts_N, best_P)].sum()
    assert got == pytest.approx(max(values_PN[np.arange(prompts), list(x)].sum() for x in every), abs=1e-12)


def test_work_counts_multiples_of_the_common_unit():
    assert work(np.array([0, 8, 16]), 10, 64) == 10 * 3 * 9
    assert work(np.array([0]), 10, 0) == 10
