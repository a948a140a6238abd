"""Exact counts for a few prompts, by dynamic programming over the rollouts that are spent."""

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray

__all__ = ["best_counts", "work"]


def work(counts_N: IntArray, prompts: int, rollouts: int) -> int:
    """The number of sums that `best_counts` computes: one for each prompt, count and number of
    rollouts spent."""
    return prompts * len(counts_N) * (rollouts // _unit(counts_N) + 1)


def best_counts(values_PN: FloatArray, counts_N: IntArray, rollouts: int) -> IntArray:
    """The counts with the largest total value that sum to `rollouts`. Values need not be concave or
    rise.

    This is the recursion of the multiple-choice knapsack: the best value of the first prompts for
    every number of rollouts that they may spend (Kellerer, Pferschy and Pisinger, Knapsack
    Problems, 2004, sec. 11.5).

    Args:
        values_PN: Value of each count, finite, shape (P, N).
        counts_N: The counts that a prompt may have, ascending, at least 0, shape (N,).
        rollouts: A sum that can be spent. This is not checked.

    Returns:
        Counts, shape (P,).

    >>> best_counts(np.array([[0.0, 0.0, 3.0], [0.0, 2.0, 2.5]]), np.array([0, 2, 3]), 5)
    array([3, 2])
    """
    unit = _unit(counts_N)
    steps_N, total = counts_N // unit, rollouts // unit
    most = int(steps_N[-1])
    # best[most + s]: the largest value of the prompts so far that spend s units; -inf where they
    # cannot.
    best = np.full(most + total + 1, -np.inf)
    best[most] = 0.0
    from_SN = most + np.arange(total + 1)[:, None] - steps_N
    choice_PS = np.zeros((len(values_PN), total + 1), dtype=np.int64)
    for row, values_N in enumerate(values_PN):
        sums_SN = best[from_SN] + values_N
        choice_PS[row] = sums_SN.argmax(axis=1)
        best[most:] = np.take_along_axis(sums_SN, choice_PS[row][:, None], axis=1)[:, 0]
    counts_P = np.zeros(len(values_PN), dtype=np.int64)
    for row in range(len(values_PN) - 1, -1, -1):
        chosen = choice_PS[row, total]
        counts_P[row] = counts_N[chosen]
        total -= int(steps_N[chosen])
    return counts_P


def _unit(counts_N: IntArray) -> int:
    """The largest number of rollouts of which all counts are multiples."""
    return max(int(np.gcd.reduce(counts_N)), 1)
