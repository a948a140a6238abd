"""The reward at a success: a line through the rewards and successes of a batch."""

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import FloatArray


def reward_line(
    rewards_R: FloatArray, success_R: FloatArray, group_R: NDArray[np.int64], reward_range: tuple[float, float]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The reward expected at success 0, its rise to success 1, and the variance around that line, for each row.

    A least-squares line through the rows of all other prompts, and a point at each end of `reward_range` that counts
    as a hundredth of a row: for a total of 0.8 for the answer and 0.2 for the format, the line gives 0.2 for a failure
    with correct format. Rows with NaN are left out.

    Args:
        rewards_R, success_R: Shape (R,).
        group_R: The prompt of each row, from 0 on, shape (R,).
        reward_range: Rewards at success 0 and 1, used in the absence of data.

    Returns:
        Three arrays of shape (R,).

    >>> rewards_R, success_R = np.array([0.2, 1.0] * 500), np.array([0.0, 1.0] * 500)
    >>> [x[:1].round(2) for x in reward_line(rewards_R, success_R, np.arange(1000), (0.0, 1.0))]
    [array([0.2]), array([0.8]), array([0.])]
    """
    low, high = reward_range
    known_R = ~np.isnan(rewards_R) & ~np.isnan(success_R)
    r_R, s_R = np.where(known_R, rewards_R - low, 0.0), np.where(known_R, success_R, 0.0)

    def others(x_R: FloatArray, ends: float) -> FloatArray:
        own_G = np.bincount(group_R, weights=x_R)
        return np.asarray((own_G.sum() - own_G)[group_R] + ends)

    top, w = high - low, 0.01
    n_R, s1_R, s2_R = others(known_R.astype(np.float64), 2 * w), others(s_R, w), others(s_R**2, w)
    r1_R, rs_R, r2_R = others(r_R, w * top), others(r_R * s_R, w * top), others(r_R**2, w * top**2)
    slope_R = (n_R * rs_R - s1_R * r1_R) / (n_R * s2_R - s1_R**2)
    start_R = (r1_R - slope_R * s1_R) / n_R
    rest_R = np.maximum(r2_R - start_R * r1_R - slope_R * rs_R, 0.0) / n_R
    return low + start_R, slope_R, rest_R
