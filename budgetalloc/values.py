"""The value of n rollouts of a prompt: pure functions `(belief, counts_N) -> values_PN`.

Every value is 0 at n = 0 and does not fall as n grows. With a `Beta`, it is the expectation under
the belief, in closed form. With a `Point`, it is the value at that rate. Graded successes in [0, 1]
are treated as success rates. Values that measure variance are multiplied by the belief's spread
(`Beta.spread_P`).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import Belief, FloatArray, check_belief, check_counts

Value = Callable[[Belief, ArrayLike], FloatArray]


def mixed_group(belief: Belief, counts_N: ArrayLike) -> FloatArray:
    """The chance that a group of n has both a success and a failure: 1 - E[p^n] - E[(1-p)^n], times
    the spread.

    With a group baseline, only such a group has a gradient. DAPO (arXiv 2503.14476) filters for it.
    Knapsack RL (arXiv 2509.25849) calls it the probability of a non-zero gradient.

    Returns:
        Shape (P, N), in [0, 1), and 0 for n of 0 and 1. Concave in n from n = 1.

    >>> from budgetalloc import Beta, Point
    >>> mixed_group(Point([0.5]), [0, 1, 2, 4, 8])
    array([[0.       , 0.       , 0.5      , 0.875    , 0.9921875]])
    >>> mixed_group(Beta([1.0], [1.0]), [2, 4, 8]).round(4)
    array([[0.3333, 0.6   , 0.7778]])
    """
    check_belief(belief)
    values_PN = belief.all_pass(counts_N)
    values_PN += belief.all_fail(counts_N)
    np.subtract(1.0, values_PN, out=values_PN)
    values_PN[:, np.atleast_1d(counts_N) <= 1] = 0.0
    values_PN *= belief.spread_P[:, None]
    return np.maximum(values_PN, 0.0, out=values_PN)


def pass_at_n(belief: Belief, counts_N: ArrayLike) -> FloatArray:
    """The chance of at least one success in n rollouts: 1 - E[(1-p)^n] (HORA, arXiv 2605.07114).

    Returns:
        Shape (P, N), in [0, 1]. Concave in n from n = 0.

    >>> from budgetalloc import Point
    >>> pass_at_n(Point([0.25]), [0, 1, 2])
    array([[0.    , 0.25  , 0.4375]])
    """
    check_belief(belief)
    return 1.0 - belief.all_fail(counts_N)


def variance(belief: Belief, counts_N: ArrayLike) -> FloatArray:
    """The variance reduction of a prompt's gradient by n rollouts: E[p(1-p)] (1 - 1/n) times the
    spread.

    Maximizing the sum minimizes sum E[p(1-p)] / n, the total variance of the gradient estimate over
    prompts with at least one rollout (VIP, arXiv 2602.01601).

    Returns:
        Shape (P, N), in [0, 0.25), and 0 for n of 0 and 1. Concave in n from n = 1.

    >>> from budgetalloc import Point
    >>> variance(Point([0.5]), [0, 1, 2, 4])
    array([[0.    , 0.    , 0.125 , 0.1875]])
    """
    check_belief(belief)
    counts = check_counts(counts_N, len(belief)).astype(np.float64)
    variance_P = belief.moment(1, 1) * belief.spread_P
    return (variance_P * (1.0 - 1.0 / np.maximum(counts, 1.0))[:, None]).T


def success_gain(belief: Belief, counts_N: ArrayLike) -> FloatArray:
    """The chance of a mixed group times the expected rise of p after a step: E[(1 - p^n - (1-p)^n)
    p (1-p)^2].

    This is the value of Knapsack RL (arXiv 2509.25849), which uses the last visit's mean as p (a
    `Point`). Under a `Beta`, it is E[p q^2] - E[p^(n+1) q^2] - E[p q^(n+2)] with q = 1 - p. Its
    maximum is at p = 2/5 for n = 2, and at p = 1/3 for large n. For graded success, both factors
    are multiplied by the spread, because the rise is (1-p) times the variance.

    Returns:
        Shape (P, N), in [0, 4/27), and 0 for n of 0 and 1. Concave in n from n = 1.

    >>> from budgetalloc import Beta, Point
    >>> success_gain(Point([1 / 3, 0.5]), [2, 64]).round(4)
    array([[0.0658, 0.1481],
           [0.0625, 0.125 ]])
    >>> success_gain(Beta([1.0], [1.0]), [2, 8]).round(4)  # E[p q^2 * 2 p q] = 2 E[p^2 q^3] = 1/30
    array([[0.0333, 0.0742]])
    """
    check_belief(belief)
    values_PN = mixed_group(belief.tilt(1, 2), counts_N)
    return np.multiply(values_PN, (belief.moment(1, 2) * belief.spread_P)[:, None], out=values_PN)
