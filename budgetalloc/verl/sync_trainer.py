"""The trainer mode "budgetalloc" of verl: its synchronous trainer, with the prompts and counts of a
policy."""

import time
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.debug import marked_timer

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import UnsupportedError
from budgetalloc.training.session import rows_to_train_on
from budgetalloc.verl import transfer_queue
from budgetalloc.verl.batches import Sessions, rows_to_roll_out
from budgetalloc.verl.groups import Groups
from budgetalloc.verl.trainer import MODE, AttachedTrainer, column


@register_trainer(MODE)
class AdaptivePPOTrainer(AttachedTrainer, PPOTrainerSync):  # type: ignore[misc]
    """verl's synchronous trainer with a policy for prompts and rollouts:
    `trainer.v1.trainer_mode=budgetalloc`.

    A step has `data.train_batch_size` times `rollout.n` rollouts, as without the policy, or those
    of `pacing`. The node `budgetalloc` of the configuration holds the policy and the settings that
    `Settings.read` takes. `pacing` is a mapping as in configs/paced.yaml. `success` names an entry
    of the dictionary that the reward function returns with the score, or is a threshold on the
    score. Validation and the length of an epoch are verl's own. An epoch need not visit every
    prompt.

    Raises:
        UnsupportedError: verl lacks a method that is replaced, or a setting of verl or the policy
            is not supported.
        InputError: a setting is invalid. BudgetError: floor, cap, min_group and quantum contradict
            each other.
    """

    verl_mode = "sync"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._kept_R = np.zeros(0, dtype=np.int64)  # the rollouts of `batch` that are trained on
        self._groups = Groups(self.session)  # of the step, by verl's uid
        self._uids: list[str] = []  # in the order in which the session was told of them
        self._loaded: Any = None  # verl's batch of prompts, and their names
        self._own_ids: list[Id] = []

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        """verl's batch of prompts, with the rows and counts of the policy's decision."""
        started = time.perf_counter()
        candidates, batch, ids = self.options.bounds.candidates, None, list[Id]()
        if candidates != "all" or self.session.from_loader:
            batch = super()._next_train_batch(num_prompts)
            ids = self._names_of(batch)
        rollouts = self.policy.rollouts(self._rollouts)
        self.session.begin(ids, rollouts, self._group)
        self._groups, self._loaded, self._own_ids = Groups(self.session), batch, ids
        if self.options.keep_batch:
            of_uid = dict(zip(column(batch, "uid"), ids, strict=True))
            self._groups.add(of_uid, [self._group] * len(ids))
        else:
            batch = self._batch_for(self.session.request())
        self._uids = list(self._groups.prompts)
        self._seconds = time.perf_counter() - started
        return batch

    def _batch_for(self, ids_R: list[Id], earlier: Mapping[Id, int] | None = None) -> Any:
        """Rows and counts for these rollouts, each a group. `earlier` is as in
        `rows_to_roll_out`."""
        from_loader = self.options.bounds.candidates == 1
        prompts = None if from_loader else self.prompts
        rows, ids, counts = rows_to_roll_out(self.session, ids_R, self._own_ids, prompts, earlier)
        if not from_loader:
            batch = self._batch_of(rows)
        else:
            batch = tensordict_utils.index_select_tensor_dict(self._loaded, rows)
            if earlier is not None:
                new = [str(uuid.uuid4()) for _ in rows]
                tensordict_utils.assign_non_tensor_stack(batch, "uid", new)
        batch["__rollout_n__"] = torch.as_tensor(counts)
        self._groups.add(dict(zip(column(batch, "uid"), ids, strict=True)), counts)
        return batch

    def _batch_of(self, rows: list[int]) -> Any:
        columns = collate_fn([self.train_dataset[row] for row in rows])
        # verl splits its keys at "_"
        columns["uid"] = np.array([str(uuid.uuid4()) for _ in rows], dtype=object)
        batch = tensordict_utils.get_tensordict(columns)
        tensordict_utils.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        return batch

    def _step_once(
        self, metrics: dict[str, Any], timing_raw: dict[str, Any], sample_batch_size: int
    ) -> Any:
        if self._in_rounds:
            with marked_timer("gen", timing_raw, color="red"):
                self._generate_rest()
        return super()._step_once(metrics, timing_raw, len(self._groups.prompts))

    @property
    def _in_rounds(self) -> bool:
        return not self.options.keep_batch and self.session.step.in_rounds()

    def _generate_rest(self) -> None:
        """Generates what the policy requests by the outcomes of the groups that have ended, until
        they all have."""
        groups = self._groups
        while groups.running:
            tags = transfer_queue.tags("train")
            uids = transfer_queue.ended(tags, groups.running)
            if not uids or not (groups.early or len(uids) == len(groups.running)):
                time.sleep(self.replay_buffer.poll_interval)
                continue
            started = time.perf_counter()
            self._tell_groups(tags, uids)
            if ids_R := groups.request(uids):
                self._submit_batch_to_rollout(self._batch_for(ids_R, groups.requests()))
            self._seconds += time.perf_counter() - started

    def _tell_groups(self, tags: Mapping[str, Mapping[str, Any]], uids: list[str]) -> None:
        rows = transfer_queue.of_groups(tags, uids, "train")
        sessions = Sessions.of(rows.keys, rows.tags, uids)
        self._tell(rows, sessions, [self._groups.prompts[uid] for uid in sessions.uids_R])

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *more: Any, **named: Any) -> Any:
        """verl's batch, without the rollouts that the policy does not train on."""
        if self.options.generate > 1:
            sessions = self._observed(batch)
            self._kept_R = np.sort(rows_to_train_on(self.policy, self.batch, self._rollouts))
            if len(set(self._kept_R.tolist())) < len(self._kept_R):
                raise UnsupportedError(
                    f"{self.policy} trains on a rollout several times, and verl's TransferQueue "
                    "has each once. Use another policy, or TRL."
                )
            batch = transfer_queue.without(batch, sessions, self._kept_R)
        return super()._balance_batch(batch, metrics, *more, **named)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        if self.options.generate > 1:
            sessions = self._sessions(batch)
        else:
            sessions = self._observed(batch)
            self._kept_R = np.arange(len(self.batch))
        return self._finish(batch, metrics, sessions, self._kept_R)

    def _observed(self, batch: Any) -> Sessions:
        """The rollouts that came back, after the policy's step has observed them."""
        if self._in_rounds:
            self._uids, tags = [], dict(zip(batch.keys, batch.tags, strict=True))
            for uids in self._groups.in_whole_rounds():
                self._tell_groups(tags, uids)
                self._uids += uids
            self.batch = self.session.record(self.global_steps)
            return self._sessions(batch)
        sessions = self._sessions(batch)
        self._observe(batch, sessions, [self._groups.prompts[uid] for uid in sessions.uids_R])
        return sessions

    def _sessions(self, batch: Any) -> Sessions:
        return Sessions.of(batch.keys, batch.tags, self._uids)
