"""The metrics of a step: statistics of its groups, and the accuracy of the beliefs' predictions.

A metric that is undefined in a step (such as the share of mixed groups if every group is one
rollout) is omitted.
"""

import numpy as np

from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.beliefs.rewards import EQUAL, KINDS, group_kinds, mixed_groups, some_unequal
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.success import Measure
from budgetalloc.values import mixed_group

MAIN = frozenset(
    {
        "prompts",
        "success",
        "brier",
        "brier_pool_mean",
        "explained",
        "frac_mixed",
        "pool_seen",
        "lost",
        "advantage/frac_nonzero",
        "advantage/rms",
        "advantage/lean",
    }
)
"""The metrics of `Options(metrics="main")`, beside `fallback`, `seconds` and those of parts;
`lost` only if there are such rollouts."""


def metrics_of(
    batch: Rollouts,
    measure: Measure,
    advantages_R: FloatArray,
    lost_R: Beta | None,
    pool_seen: float | None = None,
    *,
    every: bool = True,
    hints: bool = False,
) -> dict[str, float]:
    """The metrics of a step. Rollouts with a hint are left out, because beliefs predict success
    without hints.

    Args:
        measure: Mapped the rewards to success.
        advantages_R: The advantages that are trained on.
        lost_R: The belief about the prompt of each rollout that was requested and never came; None
            if all came.
        pool_seen: Share of the dataset's prompts seen before the step, if known.
        every: Whether to return all, or those of `MAIN`.
        hints: Whether to count rollouts with a hint.
    """
    rows = np.flatnonzero(~batch.hinted_R & ~np.isnan(batch.success_R))
    success_R, belief_R = batch.success_R[rows], batch.belief_R.take(rows)
    metrics = {"prompts": float(len(set(batch.ids_R)))}
    if rows.size:
        metrics |= _of_groups(batch, every)
        metrics["success"] = float(np.mean(success_R))
        metrics["brier"] = float(np.mean((belief_R.mean - success_R) ** 2))
        metrics["brier_pool_mean"] = float(np.mean((batch.earlier.mean_success - success_R) ** 2))
        predicted_R = batch.by_beliefs.line.at(batch.belief_R.mean)[rows]
        rewards_R = batch.rewards_R[rows]
        if some_unequal(rewards_R) and not np.isnan(rewards_R).any():
            error = float(np.mean((rewards_R - predicted_R) ** 2))
            metrics["explained"] = 1.0 - error / float(np.var(rewards_R))
    if pool_seen is not None:
        metrics["pool_seen"] = min(1.0, pool_seen)
    metrics |= of_advantages(advantages_R)
    if lost_R is not None or every:
        metrics |= of_lost(lost_R, batch.belief_R)
    if not every:
        return {name: value for name, value in metrics.items() if name in MAIN}
    if rows.size:
        metrics |= by_kind(success_R, belief_R, batch.prior.take(rows))
    metrics["rewards_clipped"] = float(measure.count_clipped(batch.rewards_R, batch.scores_RF))
    metrics["all_equal"] = float(not some_unequal(batch.rewards_R))
    if hints:
        metrics["hinted"] = float(np.sum(batch.hinted_R))
    return metrics


def _of_groups(batch: Rollouts, every: bool) -> dict[str, float]:
    """Shares of the rollouts by the kind of their group, and group sizes if any group has two
    rollouts or more."""
    unhinted = ~batch.hinted_R
    group_R = batch.group_R[unhinted]
    n_G = np.bincount(group_R, minlength=len(batch.first_G))
    rewards_R, success_R = batch.rewards_R[unhinted], batch.success_R[unhinted]
    kind_G, scored_G = group_kinds(rewards_R, success_R, group_R, len(n_G), batch.resolution)
    scored = max(int(scored_G.sum()), 1)
    metrics = {
        f"frac_{kind}": float(scored_G[kind_G == at].sum() / scored)
        for at, kind in enumerate(KINDS)
    }
    if not every:
        return metrics
    counts_N = np.flatnonzero(np.bincount(scored_G))
    chance_GN = mixed_group(batch.belief_R.take(batch.first_G), counts_N)
    chance_G = chance_GN[np.arange(len(scored_G)), np.searchsorted(counts_N, scored_G)]
    metrics["frac_mixed_predicted"] = float((chance_G * scored_G).sum() / scored)
    if n_G.max() == 1:
        return metrics
    met_G = n_G[n_G > 0]
    counts = {"min": met_G.min(), "mean": met_G.mean(), "max": met_G.max()}
    return metrics | {f"count/{key}": float(x) for key, x in counts.items()}


def by_kind(success_R: FloatArray, belief_R: Beta, prior: Beta) -> dict[str, float]:
    """Mean success of prompts that were never, sometimes and always solved before; new prompts are
    left out.

    Args:
        success_R: In [0, 1], shape (R,).
        belief_R: The belief about each prompt before the step.
        prior: The prior that each belief contains, shape (R,) or one entry.

    >>> by_kind(np.array([1.0, 0.0, 1.0]), Beta([0.5, 0.5, 1.5], [2.5, 4.5, 0.5]),
    ...     Beta([0.5], [0.5]))
    {'success/never': 0.5, 'success/always': 1.0}
    """
    solved_R, failed_R = belief_R.alpha_P > prior.alpha_P, belief_R.beta_P > prior.beta_P
    kinds = {
        "never": failed_R & ~solved_R,
        "sometimes": failed_R & solved_R,
        "always": solved_R & ~failed_R,
    }
    return {
        f"success/{kind}": float(np.mean(success_R[of_R]))
        for kind, of_R in kinds.items()
        if of_R.any()
    }


def of_advantages(advantages_R: FloatArray) -> dict[str, float]:
    """Share of advantages that are not 0, their mean absolute value, root mean square and mean
    relative to it, and the negative share of their absolute sum.

    >>> of_advantages(np.array([1.5, -0.5, 0.0, 0.0]))  # doctest: +ELLIPSIS
    {'advantage/frac_nonzero': 0.5, 'advantage/mean_abs': 0.5, 'advantage/rms': 0.790...,
     'advantage/lean': 0.316..., 'advantage/share_negative': 0.25}
    """
    size_R = np.abs(advantages_R)
    rms = float(np.sqrt(np.mean(size_R**2)))
    metrics = {
        "advantage/frac_nonzero": float(np.mean(size_R > EQUAL)),
        "advantage/mean_abs": float(np.mean(size_R)),
        "advantage/rms": rms,
        "advantage/lean": float(np.mean(advantages_R)) / rms if rms > 0 else 0.0,
    }
    if (mass := float(size_R.sum())) > 0:
        metrics["advantage/share_negative"] = float(size_R[advantages_R < 0].sum()) / mass
    return metrics


def of_lost(lost_R: Beta | None, came_R: Beta) -> dict[str, float]:
    """The number of rollouts that were requested and never came, and by how much the step became
    easier: the expected success of what came minus that of all that was requested, by the beliefs
    before the step. It is positive if hard prompts were lost.

    >>> of_lost(Beta([1.0], [4.0]), Beta([2.0, 2.0, 2.0], [2.0, 2.0, 2.0]))
    {'lost': 1.0, 'lost/easier': 0.075}
    """
    if lost_R is None:
        return {"lost": 0.0}
    lost, came = lost_R.mean, came_R.mean
    easier = float(came.mean() - np.append(came, lost).mean())
    return {"lost": float(lost.size), "lost/easier": round(easier, 9)}


def share_without_spread(batch: Rollouts) -> float:
    """Share of rollouts in groups of two or more with equal rewards: TRL's `frac_reward_zero_std`,
    by real groups."""
    groups, scored_R = len(batch.counts_G), ~np.isnan(batch.rewards_R)
    n_G = np.bincount(batch.group_R[scored_R], minlength=groups)
    mixed_G = mixed_groups(batch.rewards_R, batch.group_R, groups, batch.resolution)
    equal_G = (n_G > 1) & ~mixed_G
    return float(n_G[equal_G].sum() / max(n_G.sum(), 1))
