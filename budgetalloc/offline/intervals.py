"""Confidence intervals over a few independent runs, by Student's t, and what a run spends until its
curve reaches a level."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.errors import InputError, check_array, check_list, check_number


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
        spread, and where a number is not finite.

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

    >>> # 2.5 -+ 4.303 * sqrt(1 + 1) / 2
    >>> [round(x, 3) for x in stratified_interval([[1.0, 3.0], [2.0, 4.0]])]
    [-0.542, 5.542]
    """
    check_number("level", level, 0, 1, without=(0, 1))
    listed = check_list("samples", samples, "lists of numbers, one per seed")
    arrays = [_sample("samples", sample) for sample in listed]
    if not arrays:
        raise InputError("samples", "give at least one list of numbers.", samples)
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
        spread = largest * float(share_K.sum()) ** 0.5 / len(arrays)
        half = float(stdtrit(freedom, (1 + level) / 2)) * spread
    return mean - half, mean + half


def _sample(name: str, values_S: ArrayLike) -> NDArray[np.float64]:
    values = check_array(name, values_S, "one value per seed")
    if values.ndim != 1:
        raise InputError(
            f"{name} has shape {values.shape}: give one value per seed.", argument=name
        )
    return values


def reached(spent_G: ArrayLike, level_G: ArrayLike, goal: float) -> float:
    """What is spent when a curve first reaches a goal, on straight lines between its points.

    Args:
        spent_G: What was spent up to each point, ascending, such as rollouts, tokens or seconds.
        level_G: The curve at each point, such as held-out success.
        goal: The level to reach.

    Returns:
        In the unit of `spent_G`; infinite if the curve never reaches the goal.

    Raises:
        InputError: The curve has no point, the lengths differ, or `goal` is not a number.

    >>> reached([0, 100, 200], [0.25, 0.75, 0.5], 0.5), reached([0, 100], [0.25, 0.4], 0.5)
    (50.0, inf)
    """
    spent = check_array("spent_G", spent_G, "one number per point")
    level = check_array("level_G", level_G, "one number per point")
    if spent.ndim != 1 or spent.shape != level.shape or not spent.size:
        shapes = f"{spent.shape} and {level.shape}"
        raise InputError(f"spent_G and level_G have shapes {shapes}: give one number per point.")
    above = np.flatnonzero(level >= check_number("goal", goal, -np.inf, np.inf))
    if not above.size:
        return float("inf")
    line = slice(max(int(above[0]) - 1, 0), int(above[0]) + 1)
    return float(np.interp(goal, level[line], spent[line]))


def share_reached(
    own_SG: ArrayLike, base_SG: ArrayLike, spent_G: ArrayLike, whole: float
) -> tuple[float, float, float]:
    """The share of the base's spending after which a policy's mean curve reaches the end of the
    base's mean curve.

    The interval has every share at which the 95 % interval by Student's t of the gap between the
    policy's curve and the base's end includes 0, paired by seed.

    Args:
        own_SG: The policy's curves, a row for each seed.
        base_SG: The base's, with the same seeds in the same order.
        spent_G: What the policy spent up to each point, ascending.
        whole: What the base spent in all.

    Returns:
        The share, and the ends of its interval. Infinite: not within the policy's run. With one
        seed, NaN for the ends.

    Raises:
        InputError: The curves have other shapes than these, or `whole` is not a positive number.

    >>> own, base = [[0.4, 0.9, 1.0], [0.6, 1.1, 1.2]], [[0.5, 0.5, 0.74], [0.5, 0.5, 0.96]]
    >>> [round(share, 3) for share in share_reached(own, base, [0, 100, 200], whole=200)]
    [0.35, 0.223, 0.477]
    """
    own = check_array("own_SG", own_SG, "a row per seed")
    base = check_array("base_SG", base_SG, "a row per seed")
    if own.ndim != 2 or base.ndim != 2 or len(own) != len(base) or not base.size:
        shapes = f"{own.shape} and {base.shape}"
        raise InputError(f"own_SG and base_SG have shapes {shapes}: give a row for each seed.")
    check_number("whole", whole, 0, np.inf, without=(0, np.inf))
    gap_SG = own - base[:, -1:]
    low_G, high_G = np.array([interval(gap_S) for gap_S in gap_SG.T]).T
    share = reached(spent_G, gap_SG.mean(axis=0), 0.0) / whole
    if len(own) == 1:
        return share, float("nan"), float("nan")
    return share, reached(spent_G, high_G, 0.0) / whole, reached(spent_G, low_G, 0.0) / whole
