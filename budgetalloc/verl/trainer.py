"""Attaches a policy to one of verl's trainers."""

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import verl
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils

from budgetalloc.beliefs.ids import Id
from budgetalloc.budget import IntArray
from budgetalloc.errors import UnsupportedError
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.training.belief_checkpoint import load_beliefs, save_beliefs
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.parts import Host
from budgetalloc.training.prompt_features import policy_with_features
from budgetalloc.training.prompts import Prompts
from budgetalloc.verl import transfer_queue
from budgetalloc.verl.batches import Sessions
from budgetalloc.verl.compatibility import (
    check_config,
    check_decisions,
    check_rounds,
    check_verl,
    without_rounds,
)
from budgetalloc.verl.settings import Settings

logger = logging.getLogger(__name__)
MODE = "budgetalloc"


class AttachedTrainer(PPOTrainer):  # type: ignore[misc]
    """Attaches a policy to a trainer of verl: settings, prompt ids, scores, the end of a step, and
    checkpoints.

    A subclass lists this class before one of verl's trainers among its bases.
    """

    verl_mode: str

    def __init__(self, config: Any) -> None:
        check_verl(PPOTrainer, verl.__version__)
        ahead = self.verl_mode != "sync"
        given = OmegaConf.to_container(OmegaConf.create(config.get(MODE) or {}), resolve=True)
        deviation = config.algorithm.get("norm_adv_by_std_in_grpo", True)
        penalty = config.algorithm.use_kl_in_reward
        self.settings = Settings.read(given, deviation=deviation, penalty=penalty, ahead=ahead)
        check_ledger(self.settings.ledger)
        self.session = self.settings.session
        self.policy, self.options = self.session.policy, self.session.options
        check_config(config, self.policy, self.options, need_critic(config), ahead=ahead)
        # verl compares it with the names of its own modes
        config.trainer.v1.trainer_mode = self.verl_mode
        super().__init__(config)
        self._group: int = config.actor_rollout_ref.rollout.n
        self._rollouts: int = config.data.train_batch_size * self._group
        self.batch: Any = None
        """The record of the last step, a `Rollouts`."""
        self._seconds = 0.0

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        dataset = self.train_dataset
        if not hasattr(dataset, "dataframe"):
            raise UnsupportedError(
                f"The train dataset is a {type(dataset).__name__} without the attribute "
                "`dataframe`, from which the prompts are named. Use verl's RLHFDataset or a "
                "subclass."
            )
        self.prompts = Prompts(dataset.dataframe, self.settings.prompt_id, dataset.prompt_key)
        self.prompts.check()
        features, ledger = self.settings.features, self.settings.ledger
        self.policy = self.session.policy = policy_with_features(
            self.policy, self.prompts, features, ledger
        )
        self._name_column = self.prompts.column or self.prompts.text
        pool = self.prompts.pool
        self.session.pool = () if self.options.bounds.candidates == 1 else pool
        self.session.pool_size = len(pool)
        if not self.options.keep_batch:
            refused = without_rounds(self.config, ahead=self.verl_mode != "sync")
            self.session.once = bool(refused)
            step = self._rollouts, self._group
            if check_decisions(self.policy, self.options, pool, *step, once=self.session.once):
                check_rounds(self.policy, refused)
            if shared := self.prompts.shared_ids_warning():
                logger.warning(shared)
        sizes = tuple({self._rollouts, *self.policy.plan})
        self.session.attach(Host(self.prompts, sizes, self._group, self.settings.check_shadow))

    def _names_of(self, batch: Any) -> list[Id]:
        name = self._name_column
        return self.prompts.ids([{name: value} for value in column(batch, name)])

    def _observe(self, batch: Any, sessions: Sessions, ids_R: list[Id]) -> None:
        """Passes the rollouts that came back to the session, and sets `batch` to their record."""
        self._tell(batch, sessions, ids_R)
        self.batch = self.session.record(self.global_steps)

    def _tell(self, batch: Any, sessions: Sessions, ids_R: list[Id]) -> None:
        session = self.session
        if not ids_R:
            session.observe([], np.zeros((0, len(session.scoring.names))), [])
            return
        names = session.reports
        session.observe(
            ids_R,
            transfer_queue.scores(batch, sessions, session.scoring.names),
            sessions.lengths_R,
            prompt_lengths_R=sessions.prompts_R if session.prompt_lengths else None,
            costs_R=transfer_queue.costs(batch, sessions, names),
            groups_R=sessions.uids_R if self.options.keep_batch else None,
        )

    def _finish(
        self, batch: Any, metrics: dict[str, Any], sessions: Sessions, kept_R: IntArray
    ) -> Any:
        """Ends the policy's step, and puts its advantages for the rows `kept_R` of `self.batch`
        into verl's batch."""
        started = time.perf_counter()
        if self.options.baseline is None:
            advantages_R = transfer_queue.advantages(batch, sessions)
        else:
            advantages_R = self.options.advantages(self.batch).values_R[kept_R]
            batch = transfer_queue.put_advantages(batch, sessions, advantages_R)
        logged = self.session.end(advantages_R, kept_R).metrics
        logged["seconds"] = self._seconds + time.perf_counter() - started
        metrics.update({f"budgetalloc/{key}": value for key, value in logged.items()})
        return batch

    def on_train_begin(self) -> None:
        """Opens the ledger at the first step of this run."""
        super().on_train_begin()
        if self.settings.ledger is not None:
            self.session.written = [
                LogWriter(self.settings.ledger, self.global_steps, self.prompts.texts)
            ]

    def _save_checkpoint(self) -> None:
        """Writes the beliefs first, because verl's own method marks the checkpoint as complete."""
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        folder.mkdir(parents=True, exist_ok=True)
        save_beliefs(folder, self.session, self.prompts, self.global_steps)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if not self.global_steps:  # a new run
            return
        trainer = self.config.trainer
        newest = Path(trainer.default_local_dir) / f"global_step_{self.global_steps}"
        folder = Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else newest
        allowed = self.settings.allow_dataset_change
        load_beliefs(folder, self.session, self.prompts, allowed, self.global_steps)


def column(batch: Any, name: str) -> list[Any]:
    """One value of each row of verl's batch."""
    return [tensordict_utils.unwrap_non_tensor_data(value) for value in batch[name]]
