"""VADE and CurES: the numbers of VADE's figure, and what CurES' paper and released code draw."""

from math import sqrt

import numpy as np
import pytest

from budgetalloc import Budget
from budgetalloc.policies import cures, vade


def believing(policy, evidence):
    """The policy after one step that left this evidence, as successes and failures of each prompt."""
    policy.observe(list(evidence), [0.0] * len(evidence))
    state = policy.state_dict()
    state["evidence"] = np.array(list(evidence.values()), dtype=float)
    policy.load_state_dict(state)
    return policy


# --- VADE ---


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


# --- CurES ---


def test_cures_counts_are_neymans():
    """Exact: deviations of 1/2 and sqrt(0.1 * 0.9) = 0.3 share 64 as 5 to 3; Beta(1, 1) is next to nothing."""
    policy = believing(cures(group=32), {"half": (5e7, 5e7), "tenth": (1e7, 9e7)})
    assert policy.allocate(["half", "tenth"], Budget(64)).tolist() == [40, 24]
    assert policy.allocate(["half", "tenth"], Budget(64, floor=0)).tolist() == [40, 24]


def test_cures_draws_prompts_by_the_softmax_of_the_deviation():
    """Computed: exp(0.5 / 0.2) against exp(0.3 / 0.2); 1,000 steps of one prompt, four standard errors."""
    policy = believing(cures(temperature=0.2), {"half": (5e7, 5e7), "tenth": (1e7, 9e7)})
    expected, n, halves = 1 / (1 + np.exp(-0.2 / 0.2)), 1000, 0
    for _ in range(n):
        halves += policy.allocate(["half", "tenth"], Budget(8, floor=0)).tolist() == [8, 0]
        policy.observe([], [])
    assert abs(halves / n - expected) < 4 * sqrt(expected * (1 - expected) / n)


def test_the_released_cures_samples_uniformly_within_half_a_percent_and_this_does_not():
    """There the temperature is 100 (successes + 1) after a pilot of 4: exp(0.5 / 100) is the most that it can do."""
    successes = np.arange(5)
    difficulty = (successes + 1) / 6
    deviation = np.sqrt(difficulty * (1 - difficulty))
    released = np.exp(deviation / (100.0 * (successes + 1)))
    assert 1 < released.max() / released.min() < 1.005
    policy = believing(cures(), {k: (k, 4 - k) for k in range(5)})
    n, drawn = 600, np.zeros(5)
    for _ in range(n):
        drawn += policy.allocate(range(5), Budget(8, floor=0)) > 0
        policy.observe([], [])
    paper = np.exp(deviation / 0.1)  # from 42 (1/6) to 148 (1/2)
    np.testing.assert_allclose(drawn / n, paper / paper.sum(), atol=4 * 0.5 / sqrt(n))
    assert drawn.max() > 2 * drawn.min()


def test_cures_forgets_nothing():
    policy = cures()
    for _ in range(3):
        policy.observe(["a"] * 4, [1, 0, 0, 1])
        policy.observe([], [])
    belief = policy.belief(["a"])
    assert (belief.alpha_P.tolist(), belief.beta_P.tolist()) == ([7.0], [7.0])


def test_cures_keeps_a_drawn_prompt_without_spread():
    """There a prompt that always or never passed is dropped; here it keeps the fewest, and the total holds."""
    policy = believing(cures(), {"half": (5e3, 5e3), "solved": (1e6, 0), "hopeless": (0, 1e6)})
    counts_P = policy.allocate(["half", "solved", "hopeless"], Budget(24, floor=0))
    assert counts_P.tolist() == [16, 4, 4]
