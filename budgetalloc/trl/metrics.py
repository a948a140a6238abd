"""What a step's groups taught, and how well that was foreseen."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.budget import IntArray
from budgetalloc.ids import Id, factorize
from budgetalloc.posterior import Beta, FloatArray
from budgetalloc.values import mixed_group

_EQUAL = 1e-6  # rewards arrive as float32


def group_metrics(ids_R: Sequence[Id], rewards_R: FloatArray, belief_R: Beta) -> dict[str, float]:
    """Metrics of one step, by group; rewards lie in [0, 1], NaN where there was none.

    Args:
        ids_R: Prompt of each rollout.
        rewards_R: Its reward.
        belief_R: The belief about its prompt before the step.

    >>> from budgetalloc import Beta
    >>> m = group_metrics(["a", "a", "b", "b"], np.array([1.0, 0.0, 0.0, 0.0]), Beta([1] * 4, [1] * 4))
    >>> {k: round(v, 3) for k, v in m.items()}
    {'frac_mixed': 0.5, 'frac_all_pass': 0.0, 'frac_all_fail': 0.5, 'frac_mixed_predicted': 0.333, 'brier': 0.25,
     'prompts': 2.0, 'count/min': 2.0, 'count/mean': 2.0, 'count/max': 2.0}
    """
    ids_P, group_R = factorize(ids_R)
    n_P = np.bincount(group_R)
    metrics = {}
    lowest_P, highest_P = _extremes(rewards_R, group_R, len(ids_P))
    scored_P = np.isfinite(lowest_P)
    if scored_P.any():
        low, high = lowest_P[scored_P], highest_P[scored_P]
        first_P = np.unique(group_R, return_index=True)[1]
        chance_P = _at_count(belief_R.take(first_P), n_P)
        error_R = (belief_R.mean - rewards_R)[~np.isnan(rewards_R)]
        metrics = {
            "frac_mixed": float(np.mean(high - low > _EQUAL)),
            "frac_all_pass": float(np.mean(low > 1 - _EQUAL)),
            "frac_all_fail": float(np.mean(high < _EQUAL)),
            "frac_mixed_predicted": float(np.mean(chance_P[scored_P])),
            "brier": float(np.mean(error_R**2)),
        }
    counts = {"min": n_P.min(), "mean": n_P.mean(), "max": n_P.max()}
    return {**metrics, "prompts": float(len(ids_P)), **{f"count/{key}": float(x) for key, x in counts.items()}}


def share_without_spread(ids_R: Sequence[Id], rewards_R: FloatArray) -> float:
    """Share of rollouts whose group has no spread of rewards: TRL's `frac_reward_zero_std`, by the true groups."""
    ids_P, group_R = factorize(ids_R)
    lowest_P, highest_P = _extremes(rewards_R, group_R, len(ids_P))
    with np.errstate(invalid="ignore"):  # a group without any reward: inf - inf
        spread_P = highest_P - lowest_P
    return float(np.mean(~(spread_P > _EQUAL)[group_R]))


def _extremes(rewards_R: FloatArray, group_R: IntArray, groups: int) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest reward of each group; infinite for a group without any."""
    lowest, highest = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.fmin.at(lowest, group_R, rewards_R)
    np.fmax.at(highest, group_R, rewards_R)
    return lowest, highest


def _at_count(belief_P: Beta, n_P: IntArray) -> FloatArray:
    """The chance of a mixed group for each prompt at its own count."""
    counts_N, column_P = np.unique(n_P, return_inverse=True)
    return np.asarray(mixed_group(belief_P, counts_N)[np.arange(len(n_P)), column_P])
