"""The baseline of prompts that were never seen: the recent mean success of such prompts instead of the prior's mean."""

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import Beta, FloatArray

KEPT = 0.9
"""The share of earlier first visits kept at a step with new first visits: about the last ten such steps count."""


def warmed(
    belief_R: Beta,
    cold_R: NDArray[np.bool_],
    success_R: FloatArray,
    group_R: NDArray[np.int64],
    earned: tuple[float, float],
) -> Beta:
    """The beliefs for a posterior baseline, in which cold prompts have the mean success of other cold prompts.

    A cold prompt's Beta(a, b) keeps its mass a + b; its mean becomes (a + S + s) / (a + b + N + n), with S and N the
    faded successes and rollouts of first visits before this step, and s and n those of the other cold prompts of this
    step. A prompt's own rollouts are left out, so that the baseline is independent of them. In a pool of hard prompts
    with one visit each, the prior's mean would give nearly every rollout the advantage -a / (a + b).

    Args:
        belief_R: The belief about each row's prompt before this step, shape (R,).
        cold_R: Which rows are of a prompt that was never seen before this step, shape (R,).
        success_R: The successes of this step in [0, 1], NaN for none, shape (R,).
        group_R: The prompt of each row, from 0 on, shape (R,).
        earned: S and N, as `BetaEstimator.earned` holds them.

    Returns:
        The beliefs, shape (R,); those about known prompts are unchanged.

    >>> belief = Beta(np.full(3, 0.5), np.full(3, 0.5))
    >>> cold_R, success_R, group_R = np.array([True, True, False]), np.array([1.0, 0.0, 1.0]), np.arange(3)
    >>> warmed(belief, cold_R, success_R, group_R, (2.0, 17.0)).mean  # 2.5 / 19, 3.5 / 19
    array([0.13157895, 0.18421053, 0.5       ])
    """
    counted_R = cold_R & ~np.isnan(success_R)
    trials_G = np.bincount(group_R, weights=counted_R)
    successes_G = np.bincount(group_R, weights=np.where(counted_R, success_R, 0.0))
    successes_R = earned[0] + (successes_G.sum() - successes_G)[group_R]
    failures_R = earned[1] - earned[0] + ((trials_G - successes_G).sum() - (trials_G - successes_G))[group_R]
    mass_R = belief_R.alpha_P + belief_R.beta_P
    successes_R, failures_R = np.maximum(successes_R, 0.0), np.maximum(failures_R, 0.0)  # below 0 by rounding
    mean_share_R = mass_R / (mass_R + successes_R + failures_R)
    return Beta(
        np.where(cold_R, mean_share_R * (belief_R.alpha_P + successes_R), belief_R.alpha_P),
        np.where(cold_R, mean_share_R * (belief_R.beta_P + failures_R), belief_R.beta_P),
    )
