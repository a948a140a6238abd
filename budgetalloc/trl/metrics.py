"""The metrics of a step: what its groups showed, and how well the beliefs foresaw it."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import EQUAL, extremes, mixed_groups, unequal
from budgetalloc.budget import IntArray
from budgetalloc.trl.batch import Batch
from budgetalloc.values import mixed_group


def describe(batch: Batch, *, hints: bool = False) -> dict[str, float]:
    """The metrics of a step. Rollouts with a hint are left out, as a hint says nothing of what was foreseen.

    Args:
        batch: The step.
        hints: Whether to count the rollouts with a hint.
    """
    rows = np.flatnonzero(~batch.hinted_R)
    metrics = group_metrics([batch.ids_R[k] for k in rows.tolist()], batch.unit_R[rows], batch.belief_R.take(rows))
    return metrics | {"hinted": float(np.sum(batch.hinted_R))} if hints else metrics


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
    lowest_P, highest_P = extremes(rewards_R, group_R, len(ids_P))
    scored_P = np.isfinite(lowest_P)
    if scored_P.any():
        low, high = lowest_P[scored_P], highest_P[scored_P]
        first_P = np.unique(group_R, return_index=True)[1]
        chance_P = _at_count(belief_R.take(first_P), n_P)
        error_R = (belief_R.mean - rewards_R)[~np.isnan(rewards_R)]
        metrics = {
            "frac_mixed": float(np.mean(unequal(low, high))),
            "frac_all_pass": float(np.mean(low > 1 - EQUAL)),
            "frac_all_fail": float(np.mean(high < EQUAL)),
            "frac_mixed_predicted": float(np.mean(chance_P[scored_P])),
            "brier": float(np.mean(error_R**2)),
        }
    counts = {"min": n_P.min(), "mean": n_P.mean(), "max": n_P.max()}
    return {**metrics, "prompts": float(len(ids_P)), **{f"count/{key}": float(x) for key, x in counts.items()}}


def share_without_spread(batch: Batch) -> float:
    """Share of rollouts whose group has equal rewards: TRL's `frac_reward_zero_std`, by the true groups."""
    mixed_G = mixed_groups(batch.unit_R, batch.group_R, len(batch.counts_G))
    return float(np.mean(~mixed_G[batch.group_R]))


def _at_count(belief_P: Beta, n_P: IntArray) -> FloatArray:
    """The chance of a mixed group for each prompt at its own count."""
    counts_N, column_P = np.unique(n_P, return_inverse=True)
    return np.asarray(mixed_group(belief_P, counts_N)[np.arange(len(n_P)), column_P])
