"""The trainer mode "budgetalloc_async" of verl: its trainer that generates ahead, with a policy's counts."""

from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync

from budgetalloc.beliefs.ids import Id
from budgetalloc.policies import Step
from budgetalloc.training.batch import Batch
from budgetalloc.verl import transfer
from budgetalloc.verl.decide import open_step, rows_to_roll_out
from budgetalloc.verl.sessions import Sessions
from budgetalloc.verl.trainer import AttachedTrainer, column


@register_trainer("budgetalloc_async")
class AdaptivePPOTrainerColocateAsync(AttachedTrainer, PPOTrainerColocateAsync):  # type: ignore[misc]
    """verl's `colocate_async` trainer in which a policy decides rollouts: `trainer.v1.trainer_mode=budgetalloc_async`.

    verl generates ahead of training and trains on a number of groups, so that rollouts move between the prompts that
    are submitted together (`candidates=1`), and a batch holds groups of several decisions. The policy learns once a
    batch. The baseline of a group is from the beliefs at its decision; for groups that were under way in a checkpoint,
    from those at the resume. Everything else is as in `AdaptivePPOTrainer`.
    """

    verl_mode = "colocate_async"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._decided: dict[str, tuple[Id, Step]] = {}  # prompt and decision of each group under way, by verl's uid

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        batch = super()._next_train_batch(num_prompts)
        ids = self._names_of(batch)
        step = open_step(self.policy, self.options, ids, (), len(ids) * self._group, self._group)
        if not self.options.keep_batch:
            rows, _, counts = rows_to_roll_out(step, ids, None)
            counts_of = dict(zip(rows, counts, strict=True))  # a prompt without rollouts stays: verl counts groups
            batch["__rollout_n__"] = torch.as_tensor([counts_of.get(row, 0) for row in range(len(ids))])
        self._decided |= {uid: (name, step) for uid, name in zip(column(batch, "uid"), ids, strict=True)}
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        self._adopt(batch)
        sessions = Sessions.of(batch.keys, batch.tags, list(self._decided))
        decided_R = [self._decided[uid] for uid in sessions.uids_R]
        made, measure = self._scored(batch, sessions, [name for name, _ in decided_R])
        steps = list(dict.fromkeys(step for _, step in decided_R))
        at_R = np.array([steps.index(step) for _, step in decided_R])  # ascending, as the groups are
        parts = [
            Batch.of([made.take(np.flatnonzero(at_R == at))], step, measure, self.scoring.sums, self.global_steps)
            for at, step in enumerate(steps)
        ]
        self.batch = record = Batch.joined(parts)
        for uid in set(sessions.uids_R):
            del self._decided[uid]

        def learn() -> None:
            self.policy.observe(record.ids_R, record.rewards_R, record.success_R)

        return self._finish(batch, metrics, sessions, np.arange(len(record)), learn)

    def _adopt(self, batch: Any) -> None:
        """A decision for the groups that a checkpoint has brought back, whose own was that of another process."""
        real = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        unknown = {uid: key for key in real if (uid := key.rsplit("_", 2)[0]) not in self._decided}
        if unknown:
            name = self._name_column
            values = transfer.column(batch, list(unknown.values()), name)
            ids = self.prompts.ids([{name: value} for value in values])
            step = open_step(self.policy, self.options, ids, (), len(ids) * self._group, self._group)
            self._decided |= {uid: (each, step) for uid, each in zip(unknown, ids, strict=True)}
