"""The trainer mode "budgetalloc_async" of verl: its trainer that generates ahead, with a policy's
counts."""

from collections import Counter
from typing import Any

import numpy as np
import torch
import verl
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.utils import tensordict_utils

from budgetalloc.budget import Budget
from budgetalloc.verl import transfer_queue
from budgetalloc.verl.compatibility import BUFFER_SEAM, check_verl
from budgetalloc.verl.replay_order import PlannedReplayBuffer
from budgetalloc.verl.sessions import Sessions
from budgetalloc.verl.trainer import AttachedTrainer, column

__all__ = ["AdaptivePPOTrainerColocateAsync"]


@register_trainer("budgetalloc_async")
class AdaptivePPOTrainerColocateAsync(AttachedTrainer, PPOTrainerColocateAsync):  # type: ignore[misc]
    """verl's `colocate_async` trainer with a policy for rollouts:
    `trainer.v1.trainer_mode=budgetalloc_async`.

    verl generates ahead of training, and trains on a fixed number of groups. The policy moves
    rollouts between prompts that are submitted together (`candidates=1`), and a batch holds groups
    of several decisions. The policy learns once a batch. Baselines use the beliefs before the
    batch, which are independent of its rollouts. verl's checkpoints hold the unfinished groups with
    their counts. Everything else is as in `AdaptivePPOTrainer`.

    Batches have the order in which groups were submitted (`PlannedReplayBuffer`), unless the
    configuration has a `custom_sampler`. The setting `straggler_timeout` is the number of seconds
    after which a batch stops waiting.
    """

    verl_mode = "colocate_async"

    def __init__(self, config: Any) -> None:
        check_verl(ReplayBufferAsync, verl.__version__, BUFFER_SEAM)
        sampler = config.trainer.v1.sampler.custom_sampler
        if not (sampler.path and sampler.name):
            sampler.path, sampler.name = (
                f"pkg://{PlannedReplayBuffer.__module__}",
                PlannedReplayBuffer.__name__,
            )
        super().__init__(config)
        self.replay_buffer.timeout = self.settings.straggler_timeout
        self._submitted = 0
        self._planned_of: dict[str, int] = {}  # rollouts of each group that this process submitted

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        batch = super()._next_train_batch(num_prompts)
        numbers = range(self._submitted, self._submitted + len(batch))
        self._submitted = numbers.stop
        uids = [
            f"{self.global_steps:08}.{n:08}.{uid}"
            for n, uid in zip(numbers, column(batch, "uid"), strict=True)
        ]
        tensordict_utils.assign_non_tensor_stack(batch, "uid", uids)
        if not self.options.keep_batch:
            ids = self._names_of(batch)
            self.session.begin(ids, len(ids) * self._group, self._group)
            counts = Counter(self.session.request())
            # Each row is a group. The first row of a prompt gets all its rollouts, and rows without
            # rollouts stay, because verl counts groups.
            batch["__rollout_n__"] = torch.as_tensor([counts.pop(name, 0) for name in ids])
            self._planned_of |= dict(zip(uids, batch["__rollout_n__"].tolist(), strict=True))
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        sessions = Sessions.of(batch.keys, batch.tags)
        row_of = dict(zip(sessions.uids_R, sessions.last_R.tolist(), strict=True))
        column = transfer_queue.column(
            batch, [batch.keys[row] for row in row_of.values()], self._name_column
        )
        name_of = dict(
            zip(
                row_of,
                self.prompts.ids([{self._name_column: value} for value in column]),
                strict=True,
            )
        )
        ids_R = [name_of[uid] for uid in sessions.uids_R]
        unused = Budget(len(ids_R), floor=0, min_group=1)  # the rollouts exist already
        self.session.begin_among(list(dict.fromkeys(ids_R)), unused, len(ids_R), self._group)
        self._observe(batch, sessions, ids_R)
        batch = self._finish(batch, metrics, sessions, np.arange(len(ids_R)))
        came = Counter(sessions.uids_R)
        metrics["budgetalloc/lost"] = float(
            sum(self._planned_of.pop(uid, count) - count for uid, count in came.items())
        )
        return batch
