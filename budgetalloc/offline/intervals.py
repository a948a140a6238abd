"""Confidence intervals of means over a few independent runs, by Student's t."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.errors import InputError, check_array, check_list, check_number

__all__ = ["interval", "stratified_interval"]


def interval(values_S: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Student's t interval of a mean, from one independent value per seed.

    For two policies with the same seeds, pass their differences. The interval covers the mean of
    normal values in the stated share of cases with as few as two seeds. A bootstrap of the same
    values does not: with two seeds its 95 % interval covers the mean in half of the cases.

    Args:
        values_S: Numbers, one per seed.
        level: The share of cases in which the interval covers the mean, between 0 and 1.

    Returns:
        The lower and the upper end; NaN for fewer than two seeds, which say nothing about their
            spread, and where a
        number is not finite.

    Raises:
        InputError: `values_S` is not a list of numbers, or `level` is not between 0 and 1.

    >>> [round(x, 3) for x in interval([1.0, 2.0, 3.0])]  # 2 -+ 4.303 / sqrt(3)
    [-0.484, 4.484]
    """
    return stratified_interval([_sample("values_S", values_S)], level)


def stratified_interval(samples: Sequence[ArrayLike], level: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean of several means, such as those of several tasks with seeds
    of their own.

    The samples are independent. Their sizes and variances may differ: the degrees of freedom are
    those of Welch and Satterthwaite (Biometrika 34, 1947), which err on the safe side for samples
    of two. With one sample this is `interval`.

    Args:
        samples: For each task, numbers, one per seed.
        level: As for `interval`.

    Returns:
        The lower and the upper end; NaN if a sample has fewer than two numbers, or one that is not
            finite.

    Raises:
        InputError: `samples` is empty or not a list of lists of numbers, or `level` is not between
            0 and 1.

    >>> [round(x, 3) for x in stratified_interval([[1.0, 3.0], [2.0, 4.0]])]  # 2.5 -+ 4.303 * sqrt(1 + 1) / 2
    [-0.542, 5.542]
    """
    check_number("level", level, 0, 1, without=(0, 1))
    arrays = [
        _sample("samples", sample)
        for sample in check_list("samples", samples, "lists of numbers, one per seed")
    ]
    if not arrays:
        raise InputError(f"samples={samples!r}: give at least one list of numbers.")
    if min(len(values) for values in arrays) < 2:
        return float("nan"), float("nan")
    from scipy.special import stdtrit  # deferred: importing budgetalloc loads no scipy

    with np.errstate(invalid="ignore", over="ignore"):  # infinite and very large numbers: NaN
        mean = float(np.mean([values.mean() for values in arrays]))
        error_K = np.array([values.std(ddof=1) / len(values) ** 0.5 for values in arrays])
        if not (largest := float(error_K.max())):
            return mean, mean
        share_K = (error_K / largest) ** 2  # of the variance, up to a factor that cancels
        freedom = share_K.sum() ** 2 / (share_K**2 / [len(values) - 1 for values in arrays]).sum()
        half = (
            float(stdtrit(freedom, (1 + level) / 2))
            * largest
            * float(share_K.sum()) ** 0.5
            / len(arrays)
        )
    return mean - half, mean + half


def _sample(name: str, values_S: ArrayLike) -> NDArray[np.float64]:
    values = check_array(name, values_S, "one value per seed")
    if values.ndim != 1:
        raise InputError(f"{name} has shape {values.shape}: give one value per seed.")
    return values
