"""Metrics of a model, and of the baselines in its training, from the exact probabilities of right
answers."""

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["of_baselines", "pass_at"]


def pass_at(right_P: ArrayLike, k: int) -> float:
    """The exact mean probability that at least one of k answers is right; NaN without prompts.

    >>> pass_at([0.5, 0.0], 2)
    0.375
    """
    right = np.asarray(right_P, dtype=np.float64)
    return float(np.mean(1 - (1 - right) ** k)) if right.size else float("nan")


def of_baselines(baseline_R: ArrayLike, true_R: ArrayLike) -> tuple[float, float | None]:
    """The mean squared error of baselines, and the share of the rewards' variance that they
    explain.

    The variance is that of new rewards of 0 or 1, without the noise of the rewards that were drawn.
    A perfect baseline explains var(p) of var(p) + mean(p(1-p)). The share is None if all rewards
    are certain and equal.

    Args:
        baseline_R: One entry per rollout.
        true_R: The true probability of its reward of 1.

    >>> of_baselines([0.25, 0.75], [0.25, 0.75])
    (0.0, 0.25)
    >>> of_baselines([0.5, 0.5], [0.25, 0.75])
    (0.0625, 0.0)
    """
    base, true = np.asarray(baseline_R, dtype=np.float64), np.asarray(true_R, dtype=np.float64)
    error, noise = float(np.mean((base - true) ** 2)), float(np.mean(true * (1 - true)))
    variance = noise + float(np.var(true))
    return error, 1 - (error + noise) / variance if variance > 0 else None
