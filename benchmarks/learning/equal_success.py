"""Coverage at equal success: a policy that learns faster is not blamed for the coverage that learning itself costs.

A run is given as two curves: success, and pass@k at the same measurements.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Curve = NDArray[np.float64]


def coverage_at(success_L: Curve, success_G: ArrayLike, pass_k_G: ArrayLike) -> Curve:
    """pass@k of a run when its success first reaches these levels; between measurements by linear interpolation.

    >>> coverage_at(np.array([0.5, 0.55, 0.7]), [0.5, 0.4, 0.6, 0.8], [0.9, 0.7, 0.8, 0.9])
    array([0.9  , 0.775, 0.85 ])
    """
    success, pass_k = np.array(success_G, dtype=float), np.array(pass_k_G, dtype=float)
    at_L = np.searchsorted(np.maximum.accumulate(success), success_L)  # the first measurement that reaches the level
    last_L = np.maximum(at_L - 1, 0)
    step_L = success[at_L] - success[last_L]
    share_L = np.divide(success_L - success[last_L], step_L, out=np.ones(len(success_L)), where=step_L > 0)
    return np.asarray(pass_k[last_L] + share_L * (pass_k[at_L] - pass_k[last_L]))


def shared_levels(runs: Iterable[ArrayLike], levels: int = 41) -> Curve:
    """Levels of success that all these runs reach, from the highest start to the lowest maximum; none if they share
    none."""
    curves = [np.asarray(success_G, dtype=float) for success_G in runs]
    low, high = max(curve[0] for curve in curves), min(curve.max() for curve in curves)
    return np.linspace(low, high, levels) if low < high else np.empty(0)


def at_equal_success(own: tuple[ArrayLike, ArrayLike], base: tuple[ArrayLike, ArrayLike]) -> float:
    """pass@k of a run minus that of another when both are equally successful: the mean over the levels that they
    share. NaN if they share none.

    >>> at_equal_success(([0.4, 0.6], [0.9, 0.8]), ([0.4, 0.5], [0.9, 0.7]))  # from 0 to 0.85 - 0.7
    0.075
    """
    level_L = shared_levels((own[0], base[0]))
    if not len(level_L):
        return float("nan")
    return round(float((coverage_at(level_L, *own) - coverage_at(level_L, *base)).mean()), 9)
