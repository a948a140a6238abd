"""The trainer mode "budgetalloc_async" of verl: its trainer that generates ahead, with a policy's counts."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync

from budgetalloc.budget import Budget
from budgetalloc.verl import transfer_queue
from budgetalloc.verl.sessions import Sessions
from budgetalloc.verl.trainer import AttachedTrainer

__all__ = ["AdaptivePPOTrainerColocateAsync"]


@register_trainer("budgetalloc_async")
class AdaptivePPOTrainerColocateAsync(AttachedTrainer, PPOTrainerColocateAsync):  # type: ignore[misc]
    """verl's `colocate_async` trainer with a policy for rollouts: `trainer.v1.trainer_mode=budgetalloc_async`.

    verl generates ahead of training, and trains on a fixed number of groups. The policy moves rollouts between prompts
    that are submitted together (`candidates=1`), and a batch holds groups of several decisions. The policy learns once
    a batch. Baselines use the beliefs before the batch, which are independent of its rollouts. verl's checkpoints hold
    the unfinished groups with their counts. Everything else is as in `AdaptivePPOTrainer`.
    """

    verl_mode = "colocate_async"

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        batch = super()._next_train_batch(num_prompts)
        if not self.options.keep_batch:
            ids = self._names_of(batch)
            self.session.begin(ids, len(ids) * self._group, self._group)
            counts = Counter(self.session.request())
            # Each row is a group. The first row of a prompt gets all its rollouts, and rows without rollouts stay,
            # because verl counts groups.
            batch["__rollout_n__"] = torch.as_tensor([counts.pop(name, 0) for name in ids])
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        sessions = Sessions.of(batch.keys, batch.tags)
        row_of = dict(zip(sessions.uids_R, sessions.last_R.tolist(), strict=True))
        column = transfer_queue.column(batch, [batch.keys[row] for row in row_of.values()], self._name_column)
        name_of = dict(zip(row_of, self.prompts.ids([{self._name_column: value} for value in column]), strict=True))
        ids_R = [name_of[uid] for uid in sessions.uids_R]
        unused = Budget(len(ids_R), floor=0, min_group=1)  # the rollouts exist already
        self.session.begin_among(list(dict.fromkeys(ids_R)), unused, len(ids_R), self._group)
        self._observe(batch, sessions, ids_R)
        return self._finish(batch, metrics, sessions, np.arange(len(ids_R)))
