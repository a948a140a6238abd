"""Metrics of a model, and of the baselines in its training, from the exact probabilities of right answers."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["by_difficulty", "of_baselines", "pass_at"]


def pass_at(right_P: ArrayLike, k: int) -> float:
    """The exact mean probability that at least one of k answers is right; NaN without prompts.

    >>> pass_at([0.5, 0.0], 2)
    0.375
    """
    right = np.asarray(right_P, dtype=np.float64)
    return float(np.mean(1 - (1 - right) ** k)) if right.size else float("nan")


def by_difficulty(start_P: ArrayLike, end_P: ArrayLike) -> dict[str, Any]:
    """Success at the start and at the end, by quartile of the start, hardest first; prompts lost and gained.

    A prompt is lost if its probability falls from at least 0.5 to below 0.25; gained is the reverse.

    >>> by_difficulty([0.1, 0.2, 0.6, 0.9], [0.7, 0.2, 0.1, 1.0])
    {'quartiles': [[0.1, 0.7], [0.2, 0.2], [0.6, 0.1], [0.9, 1.0]], 'lost': 1, 'gained': 1, 'prompts': 4}
    """
    start, end = np.asarray(start_P, dtype=np.float64), np.asarray(end_P, dtype=np.float64)
    quarters = [at for at in np.array_split(np.argsort(start, kind="stable"), 4) if at.size]
    high, low = 0.5, 0.25
    return {
        "quartiles": [[round(float(p[at].mean()), 4) for p in (start, end)] for at in quarters],
        "lost": int(np.sum((start >= high) & (end < low))),
        "gained": int(np.sum((start < low) & (end >= high))),
        "prompts": len(start),
    }


def of_baselines(baseline_R: ArrayLike, true_R: ArrayLike) -> tuple[float, float | None]:
    """The mean squared error of baselines, and the share of the rewards' variance that they explain.

    The variance is that of new rewards of 0 or 1, without the noise of the rewards that were drawn. A perfect baseline
    explains var(p) of var(p) + mean(p(1-p)). The share is None if all rewards are certain and equal.

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
