"""Graded success: the spread of a prompt's successes, and rescaling when the range of rewards changes."""

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray


def spread(alpha_P: FloatArray, beta_P: FloatArray, graded_P: FloatArray) -> FloatArray:
    """The variance of successes as a share of p(1-p), in [0, 1]: 1 - n d / (a b) with n = a + b.

    Args:
        alpha_P, beta_P: Parameters of the beliefs, prior included; the prior counts as successes of 0 and 1.
        graded_P: d, the sums of u(1-u) over the successes u; 0 where all are 0 or 1, for which the spread is exactly 1.

    >>> spread(np.array([32.5, 32.5]), np.array([32.5, 32.5]), np.array([0.0, 16.0])).round(3)  # 64 times 0.5
    array([1.   , 0.015])
    """
    spread_P, at_K = np.ones(len(graded_P)), np.flatnonzero(graded_P)
    alpha_K, beta_K = alpha_P[at_K], beta_P[at_K]
    spread_P[at_K] = np.clip(1.0 - graded_P[at_K] * (alpha_K + beta_K) / (alpha_K * beta_K), 0.0, 1.0)
    return spread_P


def after_move(graded_P: FloatArray, before: tuple[FloatArray, ...], after: tuple[FloatArray, ...]) -> FloatArray:
    """The sums of u(1-u) after successes and failures changed from `before` to `after`: the same share of n p(1-p)."""
    before_P, after_P = (s_P * f_P / np.maximum(s_P + f_P, 1e-300) for s_P, f_P in (before, after))
    return graded_P * np.divide(after_P, before_P, out=np.zeros_like(after_P), where=before_P > 0)


def rescaled(
    successes_P: FloatArray, failures_P: FloatArray, graded_P: FloatArray, scale: float, shift: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums of successes, of failures and of u(1-u) after every success u became scale u + shift.

    Exact where all new successes lie in [0, 1]; otherwise the sums are clipped to what successes in [0, 1] allow.

    >>> rescaled(np.array([3.0]), np.array([1.0]), np.array([0.0]), 0.5, 0.25)  # 1, 1, 1, 0 -> 0.75 x 3, 0.25
    (array([2.5]), array([1.5]), array([0.75]))
    """
    n_P = successes_P + failures_P
    squares_P = scale**2 * (successes_P - graded_P) + 2 * scale * shift * successes_P + shift**2 * n_P
    sums_P = scale * successes_P + shift * n_P
    new_P = np.clip(sums_P, 0.0, n_P)
    most_P = new_P * (n_P - new_P) / np.maximum(n_P, 1e-300)  # of equal successes
    return new_P, n_P - new_P, np.clip(sums_P - squares_P, 0.0, most_P)
