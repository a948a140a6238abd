"""Replay of other policies on a finished run, with the run's number of rollouts per step."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.logs.chunk import Chunk, columns_of
from budgetalloc.logs.ledger import Ledger
from budgetalloc.offline.comparison import Progress, comparisons, summarise
from budgetalloc.offline.parallel import Workers
from budgetalloc.offline.replay import Replay
from budgetalloc.policies.methods import method_of
from budgetalloc.report.success import success_of
from budgetalloc.report.waste import Waste

__all__ = ["LIMITS", "POLICIES", "Replayed", "first_steps", "joined", "keep_first_steps", "replay"]

POLICIES = ("uniform", "knapsack", "thompson", "adaptive")
"""The policies compared by default. Policies such as `dapo`, which generate more than they train on, are left out."""
LIMITS = (
    "A replay answers each policy with logged rewards, each drawn once, and with a model of the prompt's rate when a "
    "policy requests more rollouts of a prompt than were logged.",
    "It shows which groups a policy would have drawn from the language model as it was. It cannot show what the "
    "language model would have learned, because learning does not react to the allocation here. A policy with fewer "
    "mixed groups may learn faster or slower; only training runs decide that.",
)
_ANSWERS = 4_000_000  # rollouts that all replays together may answer: about a minute on one core
_KEPT = 1_000_000  # rollouts of the log that a replay may hold in memory


@dataclass(frozen=True, eq=False)
class Replayed:
    """Policies replayed on a log, each with the log's number of rollouts per step.

    Args:
        rows: One dict for each policy: `min_group` (the smallest group that it may request), and the figures of
            `budgetalloc.offline.comparison.summarise`.
        steps, logged: Steps replayed, and steps of the log.
        rollouts, prompts: Per step: medians of the log.
        seeds: Number of seeds of each policy.
        narrowed: Whether `prompts` is smaller than the median of the log, so that each may have two rollouts.
    """

    rows: list[dict[str, Any]]
    steps: int
    logged: int
    rollouts: int
    prompts: int
    seeds: int
    narrowed: bool = False


def keep_first_steps(chunks: Iterable[Chunk], held: list[Chunk], rows: int = _KEPT) -> Iterator[Chunk]:
    """Passes the chunks on, and puts the log's first steps, about `rows` rollouts, into `held` for a replay."""
    held.clear()
    room = rows
    for chunk in chunks:
        if room > 0:
            held.append(first_steps(chunk, room))
            room = room - len(chunk.ids_R) if len(held[-1].ids_R) == len(chunk.ids_R) else 0
        yield chunk


def first_steps(log: Chunk, rows: int) -> Chunk:
    """As many of the log's first steps as fit into `rows` rollouts, at least one.

    >>> log = Ledger(np.array([0, 0, 1, 1]), list("abab"), *np.zeros((4, 4)))
    >>> first_steps(log, 3).ids_R
    ['a', 'b']
    """
    if len(log.ids_R) <= rows:
        return log
    steps_S, rows_S = np.unique(log.step_R, return_counts=True)
    fits = max(int(np.searchsorted(rows_S.cumsum(), rows, side="right")), 1)
    at = np.flatnonzero(log.step_R <= steps_S[fits - 1])
    columns = {name: column[at] for name, column in columns_of([log]).items()}
    return Ledger(ids_R=[log.ids_R[k] for k in at.tolist()], **columns, reward_range=log.reward_range)


def joined(parts: Sequence[Chunk], reward_range: tuple[float, float] | None) -> Ledger:
    """Parts of a log as one. Its rewards are the success of each rollout in [0, 1], from which policies learn."""
    success_R = np.concatenate([success_of(part, reward_range) for part in parts])
    whole = columns_of(parts) | {"rewards_R": success_R, "success_R": success_R, "reward_range": (0.0, 1.0)}
    return Ledger(ids_R=[name for part in parts for name in part.ids_R], **whole)


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
    """Replays a log for each policy, with as many rollouts and prompts a step as the log had (medians).

    Args:
        log: The run, or its first steps, with rewards in [0, 1].
        policies: Names of methods; the others are compared with the first.
        waste: The use of the rollouts of the whole run.
        seeds, workers, progress: As in `budgetalloc.offline.comparison.comparisons`.
        steps: Steps of each replay; by default as many as the log can answer, or fewer if that would take minutes.

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
        builders, world, rollouts, steps=steps, seeds=seeds, prompts=prompts, workers=workers, progress=progress
    )
    rows = [{**row, "min_group": builders[row["policy"]](seed=0).needs.min_group} for row in summarise(run)]
    return Replayed(rows, steps, max(waste.rollouts // rollouts, 1), rollouts, prompts, len(seeds), prompts < batch)
