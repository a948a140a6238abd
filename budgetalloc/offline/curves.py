"""What a run spends until its curve reaches a level, and the share of another policy's run that
this is."""

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.errors import InputError, check_array, check_number
from budgetalloc.offline.intervals import interval

__all__ = ["reached", "share_reached"]


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
    spent, level = (
        check_array("spent_G", spent_G, "one number per point"),
        check_array("level_G", level_G, "as many"),
    )
    if spent.ndim != 1 or spent.shape != level.shape or not spent.size:
        raise InputError(
            f"spent_G and level_G have shapes {spent.shape} and {level.shape}: give one number per "
            "point."
        )
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
    own, base = (
        check_array(name, of, "a row per seed")
        for name, of in (("own_SG", own_SG), ("base_SG", base_SG))
    )
    if own.ndim != 2 or base.ndim != 2 or len(own) != len(base) or not base.size:
        raise InputError(
            f"own_SG and base_SG have shapes {own.shape} and {base.shape}: give a row for each "
            "seed."
        )
    check_number("whole", whole, 0, np.inf, without=(0, np.inf))
    gap_SG = own - base[:, -1:]
    low_G, high_G = np.array([interval(gap_S) for gap_S in gap_SG.T]).T
    share = reached(spent_G, gap_SG.mean(axis=0), 0.0) / whole
    if len(own) == 1:
        return share, float("nan"), float("nan")
    return share, reached(spent_G, high_G, 0.0) / whole, reached(spent_G, low_G, 0.0) / whole
