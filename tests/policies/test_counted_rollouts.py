"""Rollouts that were requested and observed."""

import numpy as np
import pytest

from budgetalloc.beliefs.pool import Pool
from budgetalloc.errors import InputError
from budgetalloc.policies.counted_rollouts import CountedRollouts


def test_rollouts_come_once_and_the_rest_is_missing():
    counted = CountedRollouts(Pool.of(["a", "b", "c"]))
    counted.observe(np.array([0, 0, 0]))  # without a request, any number
    counted.request(np.array([2, 0, 1]))
    counted.observe(np.array([2, 0]))
    assert counted.missing() == ["a"]
    with pytest.raises(InputError, match="2 rollouts of 'a' after 1 before, and 2 were requested"):
        counted.observe(np.array([0, 0]))
    counted.request(np.array([1, 0, 0]))
    counted.observe(np.array([0, 0]))
    assert counted.requested == 4
    assert counted.missing() == []
    with pytest.raises(InputError, match="1 rollouts of 'b', and 0 were requested"):
        counted.observe(np.array([1]))
