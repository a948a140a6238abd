"""CurES: what its paper and its released code draw."""

from math import sqrt

import numpy as np
from policy_steps import believing

from budgetalloc import Budget
from budgetalloc.methods.cures import cures


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
    """The released temperature is 100 (successes + 1) after a pilot of 4, so that weights differ by exp(0.5 / 100)."""
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
    """The released code drops a prompt that always or never passed; here it keeps the fewest."""
    policy = believing(cures(), {"half": (5e3, 5e3), "solved": (1e6, 0), "hopeless": (0, 1e6)})
    counts_P = policy.allocate(["half", "solved", "hopeless"], Budget(24, floor=0))
    assert counts_P.tolist() == [16, 4, 4]
