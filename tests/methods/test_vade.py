"""VADE: the numbers of its figure, and what it takes."""

from math import sqrt

import numpy as np
import pytest
from policy_steps import believing

from budgetalloc import Budget
from budgetalloc.methods.vade import vade


def test_vades_two_decays_give_the_numbers_of_its_figure():
    """Exact: 0.1 -> 1.02, 8.4 -> 8.68, 2.7 -> 4.54, 5.3 -> 5.06 where visited, 9.0 -> 8.991 where not.

    The figure prints 0.2 -> 1.998 for the last, which must be 0.1998.
    """
    policy = believing(vade(), {"a": (0.1, 8.4), "b": (2.7, 5.3), "c": (9.0, 0.2)})
    policy.observe(["a"] * 8 + ["b"] * 8, [1] + [0] * 7 + [0, 1] * 4)
    belief = policy.belief(["a", "b", "c"])
    np.testing.assert_allclose(belief.alpha_P - 1, [1.02, 4.54, 8.991], rtol=1e-12)
    np.testing.assert_allclose(belief.beta_P - 1, [8.68, 5.06, 0.1998], rtol=1e-12)


def test_a_prompt_that_vade_takes_at_every_step_keeps_an_evidence_of_ten():
    """Exact: 8 (1 - 0.2^10) / (1 - 0.2) after ten visits of 8."""
    policy = vade()
    for _ in range(10):
        policy.observe(["a"] * 8, [0, 1, 1, 0, 1, 1, 1, 0])
    belief = policy.belief(["a"])
    size = float((belief.alpha_P + belief.beta_P - 2)[0])
    assert size == pytest.approx(8 * (1 - 0.2**10) / 0.8, rel=1e-12)
    assert abs(size - 10) < 0.1


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
