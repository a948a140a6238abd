"""The prior of a baseline, with the recent mean success of first visits as its mean."""

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import Beta, FloatArray

__all__ = ["KEPT", "with_first_visit_prior"]

KEPT = 0.9
"""The share of earlier first visits kept at a step with first visits: about the last ten such steps
count."""


def with_first_visit_prior(
    belief_R: Beta,
    prior: tuple[float, float],
    cold_R: NDArray[np.bool_],
    success_R: FloatArray,
    group_R: NDArray[np.int64],
    first_visits: tuple[float, float],
    share: float = 1.0,
) -> Beta:
    """Beliefs for a posterior baseline, whose prior Beta(a, b) has the mean success of first
    visits. Shape (R,).

    In a pool of hard prompts, a prior mean of 1/2 would give nearly every rollout of a cold prompt
    the advantage -a / (a + b). The prior's mean therefore becomes (a + S + s) / (a + b + N + n),
    and its mass a + b stays. S and N are the discounted successes and rollouts of first visits
    before this step, and s and n those of the other cold prompts of this step. A prompt's own
    rollouts are left out, which keeps the baseline independent of them.

    Args:
        belief_R: The belief about each rollout's prompt before this step, shape (R,).
        prior: a and b, which the beliefs contain.
        cold_R: Whether each rollout's prompt was unseen before this step, shape (R,).
        success_R: The successes of this step in [0, 1], NaN for none, shape (R,).
        group_R: The prompt of each rollout, from 0 on, shape (R,).
        first_visits: S and N (`BetaEstimator.first_visits`).
        share: The share of its mass that the prior keeps (`variance.prior_share`).

    >>> belief = Beta(np.array([0.5, 0.5, 1.5]), np.full(3, 0.5))  # the last prompt has succeeded once
    >>> cold_R, success_R, group_R = np.array([True, True, False]), np.array([1.0, 0.0, 1.0]), np.arange(3)
    >>> with_first_visit_prior(belief, (0.5, 0.5), cold_R, success_R, group_R, (2.0, 17.0)).mean
    array([0.13157895, 0.18421053, 0.5875    ])

    These are 2.5/19, 3.5/19 and (1 + 3.5/20) / 2.
    """
    counted_R = cold_R & ~np.isnan(success_R)
    successes_G = np.bincount(group_R, weights=np.where(counted_R, success_R, 0.0))
    failures_G = np.bincount(group_R, weights=counted_R) - successes_G
    successes_R = first_visits[0] + (successes_G.sum() - successes_G)[group_R]
    failures_R = first_visits[1] - first_visits[0] + (failures_G.sum() - failures_G)[group_R]
    # below 0 by rounding
    successes_R, failures_R = np.maximum(successes_R, 0.0), np.maximum(failures_R, 0.0)
    a, b = prior
    share_R = share * (a + b) / (a + b + successes_R + failures_R)
    return Beta(
        belief_R.alpha_P - a + share_R * (a + successes_R),
        belief_R.beta_P - b + share_R * (b + failures_R),
    )
