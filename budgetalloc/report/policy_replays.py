"""Replay of other policies on a finished run, with the run's number of rollouts per step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from budgetalloc.logs.ledger import Ledger
from budgetalloc.methods.table import method_of
from budgetalloc.offline.comparison import Progress, comparisons, summarise
from budgetalloc.offline.parallel import Workers
from budgetalloc.offline.replay import Replay
from budgetalloc.report.success import success_of
from budgetalloc.report.waste import Waste

__all__ = ["LIMITS", "POLICIES", "Replayed", "first_steps", "replay", "unit_rewards"]

POLICIES = ("uniform", "knapsack", "thompson", "adaptive")
"""The policies compared by default. Policies such as `dapo`, which generate more than they train
on, are left out."""
LIMITS = (
    "A replay answers each policy with logged rewards, each drawn once, and with a model of the "
    "prompt's rate when a "
    "policy requests more rollouts of a prompt than were logged.",
    "It shows which groups a policy would have drawn from the language model as it was. It cannot "
    "show what the "
    "language model would have learned, because learning does not react to the allocation here. A "
    "policy with fewer "
    "mixed groups may learn faster or slower; only training runs decide that.",
)
_ANSWERS = 4_000_000  # rollouts that all replays together may answer: about a minute on one core
_KEPT = 1_000_000  # rollouts of the log that a replay may hold in memory


@dataclass(frozen=True, eq=False)
class Replayed:
    """Policies replayed on a log, each with the log's number of rollouts per step.

    Args:
        rows: One dict for each policy: `min_group` (the smallest group that it may request), and
            the figures of `budgetalloc.offline.comparison.summarise`.
        steps, logged: Steps replayed, and steps of the log.
        rollouts, prompts: Per step: medians of the log.
        seeds: Number of seeds of each policy.
        narrowed: Whether `prompts` is smaller than the median of the log, so that each may have two
            rollouts.
    """

    rows: list[dict[str, Any]]
    steps: int
    logged: int
    rollouts: int
    prompts: int
    seeds: int
    narrowed: bool = False


def first_steps(log: Ledger, rows: int = _KEPT) -> Ledger:
    """As many of the log's first steps as fit into `rows` rollouts, at least one.

    >>> import pandas as pd
    >>> log = Ledger.of_frame(pd.DataFrame({"step": [0, 0, 1, 1], "prompt": list("abab"), "reward": 0}))
    >>> first_steps(log, 3)
    Ledger(2 rollouts of 2 prompts in 1 steps)
    """
    if len(log) <= rows:
        return log
    steps_S, rows_S = np.unique(log.frame["step"].to_numpy(), return_counts=True)
    fits = max(int(np.searchsorted(rows_S.cumsum(), rows, side="right")), 1)
    return replace(log, frame=log.frame[log.frame["step"] <= steps_S[fits - 1]])


def unit_rewards(log: Ledger, reward_range: tuple[float, float] | None) -> Ledger:
    """The log with the success of each rollout in [0, 1] as rewards, from which policies learn."""
    success_R = success_of(log, reward_range)
    return replace(
        log, frame=log.frame.assign(reward=success_R, success=success_R), reward_range=(0.0, 1.0)
    )


def replay(
    log: Ledger,
    policies: Sequence[str],
    waste: Waste,
    *,
    seeds: Sequence[int] = range(5),
    steps: int | None = None,
    workers: Workers = None,
    progress: Progress | None = None,
) -> Replayed:
    """Replays a log for each policy, with as many rollouts and prompts a step as the log had
    (medians).

    Args:
        log: The run, or its first steps, with rewards in [0, 1].
        policies: Names of methods; the others are compared with the first.
        waste: The use of the rollouts of the whole run.
        seeds, workers, progress: As in `budgetalloc.offline.comparison.comparisons`.
        steps: Steps of each replay; by default as many as the log can answer, or fewer if that
            would take minutes.

    Raises:
        InputError: no seed, or more steps than the log can answer.
    """
    world = Replay(log)
    rollouts = max(int(np.median(waste.rollouts_SK.sum(axis=1))), 2)
    batch = max(min(int(np.median(waste.groups_SK.sum(axis=1))), len(world.ids)), 1)
    prompts = min(batch, rollouts // 2)
    if steps is None:
        most = _ANSWERS // (len(set(policies)) * max(len(seeds), 1) * rollouts)
        steps = max(min(world.rollouts // rollouts, max(most, 2)), 1)
    builders = {name: method_of(name).build for name in policies}
    run = comparisons(
        builders,
        world,
        rollouts,
        steps=steps,
        seeds=seeds,
        prompts=prompts,
        workers=workers,
        progress=progress,
    )
    rows = [
        {**row, "min_group": builders[row["policy"]](seed=0).needs.min_group}
        for row in summarise(run)
    ]
    return Replayed(
        rows,
        steps,
        max(waste.rollouts // rollouts, 1),
        rollouts,
        prompts,
        len(seeds),
        prompts < batch,
    )
