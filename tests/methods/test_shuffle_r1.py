"""Shuffle-R1 repeats the pairs that matter."""

import numpy as np
from policy_steps import rows_of

from budgetalloc.methods.shuffle_r1 import shuffle_r1


def test_shuffle_r1_repeats_the_pairs_that_matter():
    ids, rewards = rows_of()
    kept = shuffle_r1(draws=4).keep(ids, rewards, 16, None)
    counts = np.bincount(kept, minlength=32)
    assert counts[:16].sum() == 16  # every draw finds positive weights enough
    assert counts.max() > 1
    assert counts.max() <= 4
    other = shuffle_r1(draws=4, seed=1).keep(ids, rewards, 16, None)
    assert not np.array_equal(kept, other)
