"""The trainer mode "budgetalloc" of verl: its synchronous trainer, with the prompts and counts of a policy."""

import logging
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils
from verl.utils.dataset.rl_dataset import collate_fn

from budgetalloc.beliefs.ids import Id
from budgetalloc.budget import IntArray
from budgetalloc.errors import UnsupportedError
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.policies.pacing_policy import Paced, possible_step_sizes
from budgetalloc.training.belief_checkpoint import load_beliefs, save_beliefs
from budgetalloc.training.downselection import rows_to_train_on
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.prompt_features import policy_with_features
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.unseen_prompts import UnseenPromptsWarning
from budgetalloc.verl import transfer_queue
from budgetalloc.verl.compatibility import check_config, check_decisions, check_verl
from budgetalloc.verl.decision import rows_to_roll_out
from budgetalloc.verl.sessions import Sessions
from budgetalloc.verl.settings import Settings

__all__ = ["MODE", "AdaptivePPOTrainer", "AttachedTrainer", "column"]

logger = logging.getLogger(__name__)
MODE = "budgetalloc"


class AttachedTrainer(PPOTrainer):  # type: ignore[misc]
    """Attaches a policy to a trainer of verl: settings, prompt ids, scores, the end of a step, and checkpoints.

    A subclass lists this class before one of verl's trainers among its bases.
    """

    verl_mode: str

    def __init__(self, config: Any) -> None:
        check_verl(PPOTrainer, verl.__version__)
        ahead = self.verl_mode != "sync"
        given = OmegaConf.to_container(OmegaConf.create(config.get(MODE) or {}), resolve=True)
        deviation, penalty = config.algorithm.get("norm_adv_by_std_in_grpo", True), config.algorithm.use_kl_in_reward
        self.settings = Settings.read(given, deviation=deviation, penalty=penalty, ahead=ahead)
        check_ledger(self.settings.ledger)
        self.session = self.settings.session
        self.policy, self.options, self.scoring = self.session.policy, self.session.options, self.session.scoring
        check_config(config, self.policy, self.options, need_critic(config), ahead=ahead)
        config.trainer.v1.trainer_mode = self.verl_mode  # verl compares it with the names of its own modes
        super().__init__(config)
        self._group: int = config.actor_rollout_ref.rollout.n
        self._rollouts: int = config.data.train_batch_size * self._group
        self.batch: Any = None
        """The record of the last step, a `Batch`."""
        self._watch = UnseenPromptsWarning()
        self._seconds = 0.0

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        dataset = self.train_dataset
        if not hasattr(dataset, "dataframe"):
            raise UnsupportedError(
                f"The train dataset is a {type(dataset).__name__} without the attribute `dataframe`, from which the "
                "prompts are named. Use verl's RLHFDataset or a subclass."
            )
        self.prompts = Prompts(dataset.dataframe, self.settings.prompt_id, dataset.prompt_key)
        self.prompts.check()
        features, ledger = self.settings.features, self.settings.ledger
        self.policy = self.session.policy = policy_with_features(self.policy, self.prompts, features, ledger)
        self._name_column = self.prompts.column or self.prompts.text
        pool = self.prompts.pool
        self.session.pool = () if self.options.bounds.candidates == 1 else pool
        self.session.pool_size = len(pool)
        if not self.options.keep_batch:
            check_decisions(self.policy, self.options, pool, self._rollouts, self._group)
            if shared := self.prompts.shared_ids_warning():
                logger.warning(shared)
        quotas = self.session.quotas = self.options.quotas_of(self.prompts, self.policy, self._rollouts, self._group)
        if (shadow := self.session.shadow) is not None:
            shadow.adopt(self.policy, self.prompts, self._rollouts, self._group)
            shadow.choose_from(self.prompts)
        if quotas is not None:
            for rollouts in possible_step_sizes(self.policy, self._rollouts):
                quotas.check(self.policy, self.options.bounds, rollouts, self._group)

    # --- a step ------------------------------------------------------------------------------------------------------

    def _names_of(self, batch: Any) -> list[Id]:
        """The prompt of each row of the loader's batch."""
        name = self._name_column
        return self.prompts.ids([{name: value} for value in column(batch, name)])

    def _observe(self, batch: Any, sessions: Sessions, ids_R: list[Id]) -> None:
        """Passes the rollouts that came back to the session, and sets `batch` to their record."""
        scores_RF = transfer_queue.scores(batch, sessions, self.scoring.names)
        reported = self.session.costs.reported
        costs_R = None if reported is None else transfer_queue.costs(batch, sessions, reported.names)
        prompts_R = None if self.options.cost is None else sessions.prompts_R
        self.session.observe(ids_R, scores_RF, sessions.lengths_R, prompt_lengths_R=prompts_R, costs_R=costs_R)
        self.batch = self.session.record(self.global_steps)

    def _finish(self, batch: Any, metrics: dict[str, Any], sessions: Sessions, kept_R: IntArray) -> Any:
        """Ends the policy's step, and puts its advantages for the rows `kept_R` of `self.batch` into verl's batch."""
        started = time.perf_counter()
        if self.options.baseline is None:
            advantages_R = transfer_queue.advantages(batch, sessions)
        else:
            advantages_R = self.options.advantages(self.batch).values_R[kept_R]
            batch = transfer_queue.put_advantages(batch, sessions, advantages_R)
        logged = self.session.end(advantages_R).metrics
        logged["seconds"] = self._seconds + time.perf_counter() - started
        metrics.update({f"budgetalloc/{key}": value for key, value in logged.items()})
        return batch

    # --- the ledger and checkpoints ----------------------------------------------------------------------------------

    def on_train_begin(self) -> None:
        """Opens the ledger at the first step of this run."""
        super().on_train_begin()
        if self.settings.ledger is not None:
            self.session.written = [LogWriter(self.settings.ledger, self.global_steps, self.prompts.texts)]

    def _save_checkpoint(self) -> None:
        """Writes the beliefs first, because verl's own method marks the checkpoint as complete."""
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        folder.mkdir(parents=True, exist_ok=True)
        save_beliefs(folder, self.session, self.prompts.fingerprint, self.global_steps)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if not self.global_steps:  # a new run
            return
        trainer = self.config.trainer
        newest = Path(trainer.default_local_dir) / f"global_step_{self.global_steps}"
        folder = Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else newest
        allowed = self.settings.allow_dataset_change
        load_beliefs(folder, self.session, self.prompts.fingerprint, allowed, self.global_steps)


@register_trainer(MODE)
class AdaptivePPOTrainer(AttachedTrainer, PPOTrainerSync):  # type: ignore[misc]
    """verl's synchronous trainer with a policy for prompts and rollouts: `trainer.v1.trainer_mode=budgetalloc`.

    A step has `data.train_batch_size` times `rollout.n` rollouts, as without the policy, or those of `pacing`. The node
    `budgetalloc` of the configuration holds the policy and the settings that `Settings.read` takes. `pacing` is a
    mapping as in configs/paced.yaml. `success` names an entry of the dictionary that the reward function returns with
    the score, or is a threshold on the score. Validation and the length of an epoch are verl's own. An epoch need not
    visit every prompt.

    Raises:
        UnsupportedError: verl lacks a method that is replaced, or a setting of verl or the policy is not supported.
        InputError: a setting is invalid. BudgetError: floor, cap, min_group and quantum contradict each other.
    """

    verl_mode = "sync"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._kept_R = np.zeros(0, dtype=np.int64)  # the rollouts of `batch` that are trained on
        self._id_of: dict[str, Id] = {}  # the prompt of each group of the step, by verl's uid

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        """verl's batch of prompts, with the rows and counts of the policy's decision."""
        started = time.perf_counter()
        candidates, batch, ids = self.options.bounds.candidates, None, list[Id]()
        if candidates != "all":
            batch = super()._next_train_batch(num_prompts)
            ids = self._names_of(batch)
        rollouts = self.policy.rollouts(self._rollouts) if isinstance(self.policy, Paced) else self._rollouts
        self.session.begin(ids, rollouts, self._group)
        if not self.options.keep_batch:
            rows, ids, counts = rows_to_roll_out(self.session, ids, None if candidates == 1 else self.prompts)
            batch = tensordict_utils.index_select_tensor_dict(batch, rows) if candidates == 1 else self._batch_of(rows)
            batch["__rollout_n__"] = torch.as_tensor(counts)
            if candidates == 1:
                self._watch.check_step(self.session.step.cold_P)
        self._id_of = dict(zip(column(batch, "uid"), ids, strict=True))
        self._seconds = time.perf_counter() - started
        return batch

    def _batch_of(self, rows: list[int]) -> Any:
        """Rows of the dataset, in the form of verl's loader."""
        columns = collate_fn([self.train_dataset[row] for row in rows])
        columns["uid"] = np.array([str(uuid.uuid4()) for _ in rows], dtype=object)  # verl splits its keys at "_"
        batch = tensordict_utils.get_tensordict(columns)
        tensordict_utils.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        return batch

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, Any], sample_batch_size: int) -> Any:
        return super()._step_once(metrics, timing_raw, len(self._id_of))

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *more: Any, **named: Any) -> Any:
        """verl's batch, without the rollouts that the policy does not train on."""
        if self.options.generate > 1:
            sessions = self._observed(batch)
            self._kept_R = np.sort(rows_to_train_on(self.policy, self.batch, self._rollouts))
            if len(set(self._kept_R.tolist())) < len(self._kept_R):
                raise UnsupportedError(
                    f"{self.policy} trains on a rollout several times, and verl's TransferQueue has each once. Use "
                    "another policy, or TRL."
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
        sessions = self._sessions(batch)
        self._observe(batch, sessions, [self._id_of[uid] for uid in sessions.uids_R])
        return sessions

    def _sessions(self, batch: Any) -> Sessions:
        return Sessions.of(batch.keys, batch.tags, list(self._id_of))


def column(batch: Any, name: str) -> list[Any]:
    """One value of each row of verl's batch."""
    return [tensordict_utils.unwrap_non_tensor_data(value) for value in batch[name]]
