"""Shuffle-R1 repeats the pairs that matter."""

import numpy as np

from budgetalloc.policies.published.which_rollouts.shuffle_r1 import shuffle_r1


def step(groups):
    """Ids and rewards of groups given as (successes, failures)."""
    ids = [at for at, n in enumerate(groups) for _ in range(sum(n))]
    return ids, np.array([x for wins, losses in groups for x in [1.0] * wins + [0.0] * losses])


GROUPS = [(1, 7), (4, 4), (8, 0), (0, 8)]


def test_shuffle_r1_repeats_the_pairs_that_matter():
    ids, rewards = step(GROUPS)
    kept = shuffle_r1(draws=4).keep(ids, rewards, 16, None)
    counts = np.bincount(kept, minlength=32)
    assert counts[:16].sum() == 16  # every draw finds positive weights enough
    assert counts.max() > 1
    assert counts.max() <= 4
    other = shuffle_r1(draws=4, seed=1).keep(ids, rewards, 16, None)
    assert not np.array_equal(kept, other)
