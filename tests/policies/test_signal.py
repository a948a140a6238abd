"""The mean absolute advantage of a group."""

from math import sqrt

import numpy as np
import pytest

from budgetalloc.policies.signal import mean_advantage


@pytest.mark.parametrize("n", [2, 5, 8])
def test_the_mean_advantage_is_that_of_the_group(n):
    """Known answer: the advantages of each possible group of 0 and 1, divided by its deviation."""
    for passed in range(1, n):
        rewards = np.r_[np.ones(passed), np.zeros(n - passed)]
        advantages = (rewards - rewards.mean()) / rewards.std()
        assert mean_advantage(passed / n) == pytest.approx(np.abs(advantages).mean(), rel=1e-12)
        unbiased = np.abs(rewards - rewards.mean()).mean() / rewards.std(ddof=1)
        assert mean_advantage(passed / n) * sqrt((n - 1) / n) == pytest.approx(unbiased, rel=1e-12)
    assert mean_advantage([0.0, 1.0]).tolist() == [0, 0]
