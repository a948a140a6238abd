"""Replay of other policies on a finished run, with the run's number of rollouts per step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import to_unit
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger import Ledger
from budgetalloc.offline.comparison import (
    Progress,
    comparisons,
    summarise,
    until_interrupted,
)
from budgetalloc.offline.parallel import Workers
from budgetalloc.offline.replay import Replay

POLICIES = ("uniform", "knapsack", "thompson", "adaptive")
"""The policies compared by default. Policies such as `dapo`, which generate more than they train
on, are left out."""
COLUMNS = (
    "Informative: different prompts with a gradient in a step, as a share of its rollouts, under "
    "the policy's own baseline. Signal: the mean over the rollouts of 4 times the variance of "
    "their prompt's logged success, 4 p (1-p) for success of 0 and 1. In mixed groups: the share "
    "of the rollouts whose group has unequal rewards. Modelled: the share that a model of the "
    "prompt's rate answered, because the log had no more of the prompt. In brackets are 95 % "
    "intervals over seeds: they say how much another draw from the same log would differ, not how "
    "much another training run would."
)
"""What the columns of a replay's table are."""
LIMITS = (
    "A replay answers each policy with logged rewards, each drawn once, and with a model of the "
    "prompt's rate when a policy requests more rollouts of a prompt than were logged. It shows "
    "what a policy would have drawn from the language model as it was. It cannot show what the "
    "language model would have learned, because learning does not react to the allocation here.",
    "Over twelve mixes of tasks with 12 to 32 policies each, the rank correlation of learning is "
    "0.66 (0.54 to 0.78) with informative prompts, and -0.72 (-0.83 to -0.61) with the share in "
    "mixed groups. A small difference decides nothing; only training runs do.",
)
"""What a replay cannot show, and how far to trust it (`benchmarks/learning/replay_ranking.py`)."""
_ANSWERS = 4_000_000  # rollouts that all replays together may answer: about a minute on one core
_KEPT = 1_000_000  # rollouts of the log that a replay may hold in memory


def success_of(ledger: Ledger, reward_range: tuple[float, float] | None) -> FloatArray:
    """The success of each rollout, NaN where there is none, shape (R,).

    Args:
        ledger: A log. Success that is not the reward mapped by the log's range is used unchanged.
        reward_range: The rewards of failure and success; None is the range of the log, or (0, 1).

    Raises:
        InputError: a reward outside a range that the log does not have itself.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"step": 0, "prompt": "a", "reward": [-1.0, 0.0, 1.0]})
    >>> ledger = Ledger.of_frame(frame, reward_range=(-1, 1))
    >>> success_of(ledger, None), success_of(ledger, (-1, 3))
    (array([0. , 0.5, 1. ]), array([0.  , 0.25, 0.5 ]))
    """
    rewards_R, success_R = (ledger.frame[name].to_numpy() for name in ("reward", "success"))
    own = ledger.reward_range
    mapped_R = to_unit(rewards_R, own or (0.0, 1.0))
    mapped_R = mapped_R if own is None else np.clip(mapped_R, 0.0, 1.0)
    stated = not np.array_equal(success_R, mapped_R, equal_nan=True)
    if stated or (reward_range is None and own is not None):
        return np.asarray(np.clip(success_R, 0.0, 1.0))
    low, high = reward_range or (0.0, 1.0)
    unit_R = to_unit(rewards_R, (low, high))
    outside_R = (unit_R < 0) | (unit_R > 1)  # False for NaN
    if outside_R.any():
        raise InputError(
            f"The log has a reward of {rewards_R[outside_R][0]:g}, outside reward_range=({low:g}, "
            f"{high:g}): give the rewards that stand for failure and success.",
            argument="reward_range",
        )
    return unit_R


def observed_range(ledger: Ledger) -> tuple[float, float]:
    """The lowest and the highest reward of a log, as the rewards of failure and success. If all
    rewards are equal, the range reaches to 0 and to 1 as well.

    >>> import pandas as pd
    >>> rewards = {"judged": [2.0, 5.0, float("nan")], "constant": [5.0]}
    >>> frames = [pd.DataFrame({"step": 0, "prompt": "a", "reward": x}) for x in rewards.values()]
    >>> [observed_range(Ledger.of_frame(frame)) for frame in frames]
    [(2.0, 5.0), (0.0, 5.0)]
    """
    rewards_R = ledger.frame["reward"].to_numpy()
    low, high = float(np.nanmin(rewards_R)), float(np.nanmax(rewards_R))
    return (low, high) if low < high else (min(low, 0.0), max(high, 1.0))


def unit_rewards(log: Ledger, reward_range: tuple[float, float] | None) -> Ledger:
    """The log with the success of each rollout in [0, 1] as rewards, from which policies learn."""
    success_R = success_of(log, reward_range)
    frame = log.frame.assign(reward=success_R, success=success_R)
    return replace(log, frame=frame, reward_range=(0.0, 1.0))


def replay(
    ledger: Ledger,
    policies: Sequence[str],
    *,
    rollouts: int,
    groups: int,
    seeds: Sequence[int],
    steps: int | None = None,
    workers: Workers = None,
    progress: Progress | None = None,
    partial: bool = False,
) -> dict[str, Any]:
    """Replays the first million rollouts of a log for each policy; the fields of a `Report`.

    Args:
        ledger: The run, with rewards in [0, 1].
        policies: Names of methods; the others are compared with the first.
        rollouts, groups: Of a step of the log, medians.
        steps: Steps of each replay; by default as many as the log can answer, or fewer if that
            would take minutes.
        seeds, workers, progress: As in `budgetalloc.offline.comparison.comparisons`.
        partial: Whether Ctrl-C ends the replays, and policies that are complete are returned.

    Raises:
        KeyboardInterrupt: Ctrl-C without `partial`, or before any policy is complete.
        InputError: no seed, or more steps than the log can answer.
    """
    logged = max(len(ledger) // rollouts, 1)
    if len(ledger) > _KEPT:
        steps_S, rows_S = np.unique(ledger.frame["step"].to_numpy(), return_counts=True)
        fits = max(int(np.searchsorted(rows_S.cumsum(), _KEPT, side="right")), 1)
        frame = ledger.frame[ledger.frame["step"] <= steps_S[fits - 1]]
        ledger = replace(ledger, frame=frame)
    world = Replay(ledger)
    batch = max(min(groups, len(world.ids)), 1)
    prompts = min(batch, rollouts // 2)  # so that groups of two fit
    if steps is None:
        most = _ANSWERS // (len(set(policies)) * max(len(seeds), 1) * rollouts)
        steps = max(min(world.rollouts // rollouts, max(most, 2)), 1)
    run = comparisons(
        {name: name for name in policies},
        world,
        rollouts,
        steps=steps,
        seeds=seeds,
        prompts=prompts,
        workers=workers,
        progress=progress,
    )
    played, stopped = until_interrupted(run, len(seeds)) if partial else (run, False)
    return {
        "policies": summarise(played),
        "replay_steps": steps,
        "replay_logged": logged,
        "replay_rollouts": rollouts,
        "replay_prompts": prompts,
        "replay_seeds": len(seeds),
        "replay_narrowed": prompts < batch,
        "replay_stopped": stopped,
    }
