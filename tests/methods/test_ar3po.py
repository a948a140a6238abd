"""AR3PO: stops at the first success."""

from itertools import product

import numpy as np
import pytest
from policy_steps import play

from budgetalloc import Budget
from budgetalloc.methods.ar3po import ar3po


def test_ar3po_stops_at_the_first_success_and_continues_the_rest():
    ids = list(range(100))
    rates = {k: float(k % 2) for k in ids}  # odd ones always pass
    counts, _ = play(ar3po(group=8, stages=2, seed=0), ids, Budget(256, floor=0), rates)
    total = counts.sum(axis=0)
    assert set(total[1::2].tolist()) <= {0, 4}
    assert set(total[::2].tolist()) <= {0, 4, 8}
    assert (total[::2] == 8).sum() >= 12


@pytest.mark.parametrize(("p", "k"), [(0.05, 1), (0.2, 2), (0.7, 3)])
def test_ar3po_mean_of_a_group_is_biased_upwards_by_as_much_as_its_docstring_says(p, k):
    """Exact: all rewards that a prompt may see in two stages of k, each with its probability."""
    expected, mass = 0.0, 0.0
    for rewards in product([0, 1], repeat=2 * k):
        step = ar3po(group=2 * k, stages=2, seed=0).begin(["a", "b"], Budget(2 * k, floor=0, min_group=1))
        first = step.ids_P[int(step.request().argmax())]
        step.observe([first] * k, rewards[:k])
        goes_on = step.request()[step.ids_P.index(first)] > 0
        assert goes_on == (not any(rewards[:k]))
        own = rewards if goes_on else rewards[:k]
        chance = p ** sum(rewards) * (1 - p) ** (2 * k - sum(rewards))
        expected, mass = expected + chance * np.mean(own), mass + chance
    assert mass == pytest.approx(1, abs=1e-12)
    assert expected == pytest.approx(p + (1 - p) ** k * p / 2, abs=1e-12)
    assert expected > p


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_ar3po_leaves_at_most_the_last_prompt_half_way(stages):
    ids = list(range(400))
    rates = dict(zip(ids, np.random.default_rng(1).choice([0.0, 0.1, 0.5, 1.0], 400).tolist(), strict=True))
    counts, rewards = play(ar3po(stages=stages, seed=0), ids, Budget(1000, floor=0), rates)
    successes, total = np.array([sum(rewards[k]) for k in ids]), counts.sum(axis=0)
    assert ((total > 0) & (total < 8) & (successes == 0)).sum() <= 1
    assert (total[successes == 0] == 8).sum() > 50
