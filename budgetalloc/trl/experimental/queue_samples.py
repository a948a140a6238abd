"""The rollouts of a step as TRL's `AsyncGRPOTrainer` takes them from its queue."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.trl.experimental.sampling import SampledCompletion, as_messages

__all__ = ["lengths", "samples_of"]


def lengths(sampled: Sequence[SampledCompletion]) -> tuple[IntArray, IntArray]:
    """The tokens of each completion, and of its prompt."""
    both = np.array(
        [(len(each.ids), len(each.request.prompt_ids)) for each in sampled], dtype=np.int64
    ).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def samples_of(
    batch: Rollouts,
    kept_R: Iterable[int],
    completions: Sequence[SampledCompletion],
    advantages_R: FloatArray,
    versions: Mapping[Id, int],
    first_group: int,
    names: Sequence[str],
) -> Iterator[Any]:
    """The rollouts to train on, with the metrics that TRL logs; rollouts without tokens are left
    out.

    Args:
        batch: The batch of the step.
        kept_R: Indices of the rollouts to train on.
        completions, advantages_R: One per rollout.
        versions: The oldest model version of each prompt's group.
        first_group: Number of the step's first group in the training.
        names: Names of the reward functions.
    """
    # experimental: TRL may move it
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    for at in kept_R:
        if not completions[at].ids:
            continue
        group = int(batch.group_R[at])
        group_rewards = batch.rewards_R[batch.group_R == group]
        scored = group_rewards[~np.isnan(group_rewards)]
        metrics = {
            "reward": batch.rewards_R[at],
            "reward_std": scored.std() if len(scored) else math.nan,
        }
        metrics |= {
            f"rewards/{name}": x for name, x in zip(names, batch.scores_RF[at], strict=True)
        }
        each, asked = completions[at], completions[at].request
        before = len(asked.prompt_ids)
        yield RolloutSample(
            prompt=as_messages("user", asked.row["prompt"]),
            completion=as_messages("assistant", each.completion),
            input_ids=np.array(asked.prompt_ids + each.ids, dtype=np.int64),
            completion_mask=np.array([0] * before + [1] * len(each.ids), dtype=np.int64),
            old_log_probs=np.array([0.0] * before + each.log_probs, dtype=np.float32),
            advantage=float(advantages_R[at]),
            model_version=versions[batch.ids_R[at]],
            group_id=first_group + group,
            metrics={name: float(x) for name, x in metrics.items()},
            enqueued_at=time.time(),
        )
