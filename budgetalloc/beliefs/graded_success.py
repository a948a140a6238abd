"""Graded success: the spread of a prompt's successes, and rescaling when the range of rewards
changes."""

import math

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import check_number

__all__ = ["rescaled"]


def rescaled(
    successes_P: FloatArray,
    failures_P: FloatArray,
    graded_P: FloatArray,
    scale: float,
    shift: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums of successes, of failures and of u(1-u) after every success u became scale u + shift,
    clipped to [0, 1].

    The result is exact if all new successes lie in [0, 1], if all old ones were 0 or 1, and if all
    were equal. Otherwise, a share of the old successes (the spread) is taken to be 0 or 1, and the
    others equal to the mean. Raises `InputError` unless `scale` is positive and both numbers are
    finite.

    >>> rescaled(np.array([3.0]), np.array([1.0]), np.array([0.0]), 0.5, 0.25)  # 1, 1, 1, 0 -> 0.75 x 3, 0.25
    (array([2.5]), array([1.5]), array([0.75]))
    """
    check_number("scale", scale, 0, math.inf, without=(0, math.inf))
    check_number("shift", shift, -math.inf, math.inf, without=(-math.inf, math.inf))
    n_P = np.maximum(successes_P + failures_P, 1e-300)
    # most_P: the sums of u(1-u) of equal successes
    m_P, most_P = successes_P / n_P, successes_P * failures_P / n_P
    binary_P = 1.0 - np.divide(graded_P, most_P, out=np.ones_like(n_P), where=most_P > 0).clip(
        0.0, 1.0
    )
    at_0, at_1 = (min(max(u, 0.0), 1.0) for u in (shift, scale + shift))
    at_m_P = np.clip(scale * m_P + shift, 0.0, 1.0)
    new_P = n_P * (binary_P * (m_P * at_1 + (1 - m_P) * at_0) + (1 - binary_P) * at_m_P)
    squares_P = n_P * (
        binary_P * (m_P * at_1**2 + (1 - m_P) * at_0**2) + (1 - binary_P) * at_m_P**2
    )
    new_P = np.minimum(new_P, successes_P + failures_P)
    failed_P = successes_P + failures_P - new_P
    return new_P, failed_P, np.clip(new_P - squares_P, 0.0, new_P * failed_P / n_P)
