"""The trainer mode "budgetalloc_async" of verl: its trainer that generates ahead, with a policy's
counts, and batches in the order in which their groups were submitted."""

import time
from collections import Counter
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
import verl
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.utils import tensordict_utils

from budgetalloc.budget import Budget
from budgetalloc.verl import transfer_queue
from budgetalloc.verl.batches import Sessions
from budgetalloc.verl.compatibility import BUFFER_SEAM, check_verl
from budgetalloc.verl.settings import Settings
from budgetalloc.verl.trainer import AttachedTrainer, column


class PlannedReplayBuffer(ReplayBufferAsync):  # type: ignore[misc]
    """Takes the groups that were submitted first, where verl takes those that end first.

    A batch waits until the oldest groups have ended. A failed session costs its own row: verl drops
    its group. After `timeout` seconds of waiting, sessions that have not ended are given up: their
    groups are trained with the rows that are there, and a group without rows is replaced by the
    next prompt. Groups are ordered by their uid, which `AdaptivePPOTrainerColocateAsync` numbers.
    Validation stays as it is.
    """

    timeout = Settings.straggler_timeout

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._overdue: set[str] = set()  # groups with sessions that were given up
        self._taken: set[str] = set()  # those of them that were trained on
        self._since: float | None = None  # when the wait for the oldest groups began

    def _sync_metadata_from_transfer_queue(self) -> None:
        super()._sync_metadata_from_transfer_queue()
        partition = self.partitions["train"]
        # too late: do not count them
        if late := [key for key in partition if key.split("_")[0] in self._taken]:
            tq.kv_clear(partition_id="train", keys=late)
            for key in late:
                del partition[key]

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        stale, filtered, failed, counts = super()._terminal_eviction_reasons(
            global_steps, partition_id
        )
        if partition_id == "train":
            with_rows = {key.split("_")[0] for key in self.partitions[partition_id]}
            failed = (failed | self._overdue) - with_rows
        return stale, filtered, failed, counts

    def _evict_terminal_groups(self, global_steps: int, partition_id: str, reasons: Any) -> Any:
        gone = self._overdue & set().union(*reasons[:3])
        self._overdue -= gone
        self._taken |= gone
        return super()._evict_terminal_groups(global_steps, partition_id, reasons)

    def _sampleable_terminal_keys(self, partition_id: str, reasons: Any) -> set[str]:
        ended: set[str] = super()._sampleable_terminal_keys(partition_id, reasons)
        if partition_id == "train":
            ended |= self._overdue - set().union(*reasons[:3])
        return ended

    def _has_enough_samples(
        self, global_steps: int, partition_id: str, batch_size: int, sampleable: set[str]
    ) -> bool:
        if partition_id != "train":
            given = global_steps, partition_id, batch_size, sampleable
            return bool(super()._has_enough_samples(*given))
        under_way = (self.pending_keys[partition_id] | self.running_keys[partition_id]) - sampleable
        oldest = sorted(sampleable | under_way)[:batch_size]
        late = under_way.intersection(oldest)
        if not late:
            self._since = None
            return len(oldest) == batch_size
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since >= self.timeout:
            self._overdue |= late
            self._since = None
        return False

    def _select_prompt_uids(self, partition_id: str, sampleable: set[str], batch_size: int) -> Any:
        _, *snapshots = super()._select_prompt_uids(partition_id, sampleable, batch_size)
        chosen = sorted(sampleable)[:batch_size]
        self._taken |= self._overdue.intersection(chosen)
        self._overdue -= self._taken
        return chosen, *snapshots


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
            sampler.path = f"pkg://{PlannedReplayBuffer.__module__}"
            sampler.name = PlannedReplayBuffer.__name__
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
        keys = [batch.keys[row] for row in row_of.values()]
        values = transfer_queue.column(batch, keys, self._name_column)
        names = self.prompts.ids([{self._name_column: value} for value in values])
        name_of = dict(zip(row_of, names, strict=True))
        ids_R = [name_of[uid] for uid in sessions.uids_R]
        unused = Budget(len(ids_R), floor=0, min_group=1)  # the rollouts exist already
        self.session.begin_among(list(dict.fromkeys(ids_R)), unused, len(ids_R), self._group)
        self._observe(batch, sessions, ids_R)
        batch = self._finish(batch, metrics, sessions, np.arange(len(ids_R)))
        came = Counter(sessions.uids_R)
        lost = sum(self._planned_of.pop(uid, count) - count for uid, count in came.items())
        metrics["budgetalloc/lost"] = float(lost)
        return batch
