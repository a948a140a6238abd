"""One step of a logistic regression that all prompts share: an extended Kalman filter of its
weights."""

import numpy as np

from budgetalloc.beliefs.posterior import Beta, FloatArray

__all__ = ["RAREST", "fitted", "left_out_means", "odds_at"]

_FOLDS = 8
_NEWTON = 3  # iterations
_FARTHEST = 3.0  # log-odds by which one iteration moves a prompt at most
RAREST = 1e-3
"""Predicted means lie between this and 1 minus it."""


def odds_at(level: FloatArray) -> FloatArray:
    """The odds p / (1-p) at these log-odds, with p in [0.001, 0.999].

    >>> odds_at(np.array([-50.0, 0.0])).round(4)
    array([0.001, 1.   ])
    """
    farthest = np.log((1 - RAREST) / RAREST)
    return np.asarray(np.exp(np.clip(level, -farthest, farthest)))


def fitted(
    features_GK: FloatArray,
    belief_G: Beta,
    successes_G: FloatArray,
    trials_G: FloatArray,
    precision_KK: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """The update of the regression's weights by the outcomes of a step, and the precision after it.

    The log-odds of prompt g rise by x_g . d from the mean of its belief. The move d maximises the
    log-likelihood of the outcomes minus d' precision d / 2, by Newton's method. Each prompt's
    log-likelihood is divided by 1 + n / (a + b), because its n outcomes share the error of one
    belief, Beta(a, b).

    Args:
        features_GK: x_g of each prompt, shape (G, K).
        belief_G: The beliefs before the step.
        successes_G, trials_G: Successes, and rollouts n, of each prompt.
        precision_KK: Inverse of the covariance of the weights before the step.

    >>> belief = Beta(np.full(100, 5.0), np.full(100, 5.0))
    >>> move, precision = fitted(np.ones((100, 1)), belief, np.full(100, 0.8), np.ones(100), np.eye(1))
    >>> round(float(move[0]), 2)  # towards log(0.8 / 0.2) = 1.39
    1.3
    """
    share_G = 1 / (1 + trials_G / belief_G.mass)
    before_G = np.log(belief_G.alpha_P / belief_G.beta_P)
    move_K = np.zeros(features_GK.shape[1])
    for _ in range(_NEWTON):
        p_G = 1 / (1 + np.exp(-np.clip(before_G + features_GK @ move_K, -50, 50)))
        after_KK = precision_KK + features_GK.T @ (
            (share_G * trials_G * p_G * (1 - p_G))[:, None] * features_GK
        )
        slope_K = features_GK.T @ (share_G * (successes_G - trials_G * p_G)) - precision_KK @ move_K
        step_K = np.linalg.solve(after_KK, slope_K)
        farthest = float(np.abs(features_GK @ step_K).max(initial=0.0))
        move_K = move_K + step_K * min(1.0, _FARTHEST / max(farthest, 1e-12))
    return move_K, after_KK


def left_out_means(
    features_GK: FloatArray,
    belief_G: Beta,
    successes_G: FloatArray,
    trials_G: FloatArray,
    precision_KK: FloatArray,
) -> FloatArray:
    """The mean of each belief after the regression has learned from the other prompts of the step,
    shape (G,).

    The prompts are divided into eight folds. The weights for the prompts of a fold are fitted to
    those of the others, so that no mean depends on the prompt's own outcomes. Arguments as in
    `fitted`.

    >>> belief = Beta(np.full(64, 5.0), np.full(64, 5.0))
    >>> successes_G = np.repeat([1.0, 0.0], [48, 16])
    >>> left_out_means(np.ones((64, 1)), belief, successes_G, np.ones(64), np.eye(1) / 4).round(2)[[0, 63]]
    array([0.74, 0.74])
    """
    fold_G = np.arange(len(belief_G)) % _FOLDS
    mean_G = belief_G.mean.copy()
    for fold in range(min(_FOLDS, len(belief_G))):
        own, others = np.flatnonzero(fold_G == fold), np.flatnonzero(fold_G != fold)
        if not others.size:
            break
        rest = belief_G.take(others)
        move_K, _ = fitted(
            features_GK[others], rest, successes_G[others], trials_G[others], precision_KK
        )
        odds_K = belief_G.alpha_P[own] / belief_G.beta_P[own] * np.exp(features_GK[own] @ move_K)
        mean_G[own] = odds_K / (1 + odds_K)
    return np.clip(mean_G, 1e-4, 1 - 1e-4)
