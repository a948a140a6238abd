"""verl's asynchronous replay buffer, with batches in the order in which their groups were
submitted."""

import time
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from budgetalloc.verl.settings import Settings

__all__ = ["PlannedReplayBuffer"]


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
        return (
            ended
            if partition_id != "train"
            else ended | (self._overdue - set().union(*reasons[:3]))
        )

    def _has_enough_samples(
        self, global_steps: int, partition_id: str, batch_size: int, sampleable: set[str]
    ) -> bool:
        if partition_id != "train":
            return bool(
                super()._has_enough_samples(global_steps, partition_id, batch_size, sampleable)
            )
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
