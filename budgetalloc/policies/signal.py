"""How much signal a group's rewards hold: the mean absolute advantage."""

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray


def mean_advantage(mean_V: ArrayLike) -> FloatArray:
    """The mean absolute advantage of a group with this mean reward: 2 sqrt(m (1-m)), 0 where all are equal.

    Of n rewards of 0 or 1, m n have |r - m| = 1 - m and the others m: the mean is 2 m (1-m). GRPO divides by the
    group's deviation, sqrt(m (1-m)). With the deviation of n - 1 it would be sqrt((n-1) / n) times that. Only the mean
    is kept of a group, so that graded rewards count as if they were 0 and 1 with the same mean, which can be far off: a
    group of equal rewards of 1/2 counts 1 instead of 0.

    >>> mean_advantage([0.0, 0.125, 0.5, 1.0]).round(4)
    array([0.    , 0.6614, 1.    , 0.    ])
    """
    mean = np.asarray(mean_V, dtype=np.float64)
    return np.asarray(2.0 * np.sqrt(np.maximum(mean * (1.0 - mean), 0.0)))
