"""The rollout worker that lets a policy decide the rollout counts of TRL's experimental `AsyncGRPOTrainer`."""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import numpy as np
import trl
from packaging.version import Version
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from budgetalloc.advantages import Baseline, Scale, Weight
from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.logs.write import LedgerWriter
from budgetalloc.policies import Policy, Step, adaptive
from budgetalloc.trl.checkpoints import load_beliefs, save_beliefs
from budgetalloc.trl.experimental.completions import Server, TrainingEnded
from budgetalloc.trl.experimental.rollouts import Rollout, Rollouts, as_sample, spread, total
from budgetalloc.trl.metrics import group_metrics
from budgetalloc.trl.options import Options
from budgetalloc.trl.prompts import Prompts

logger = logging.getLogger(__name__)


class AdaptiveRolloutWorker:
    """Makes the rollouts of TRL's `AsyncGRPOTrainer` in the place of TRL's own worker, as many of each prompt as a
    policy decides.

        worker = AdaptiveRolloutWorker(reward_funcs=reward)
        trainer = AsyncGRPOTrainer(model, args=config, train_dataset=dataset, rollout_worker=worker)
        worker.attach(trainer)
        trainer.train()

    A thread of the trainer's main process repeats one step of the policy: counts from all rewards that have come back
    so far, completions from the vLLM server, rewards, advantages, and the rollouts into the trainer's queue, with the
    version of the model under which their group was begun. What becomes of them there (batches, staleness) is TRL's
    affair. The trainer's `AsyncGRPOConfig` says how to sample. Reward functions are called in that thread, once for
    all rollouts of a round; they need not be picklable, and share the processor with the trainer.

    Args:
        policy: The allocation policy; `budgetalloc.adaptive()` if left out. It may choose what to keep of more.
        reward_funcs: One or several, as for the trainer, which ignores its own when it is given a worker. Their sum
            counts; None leaves a function out of a rollout's sum.
        rollouts_per_step: What the policy spends in one step; left out, the rollouts of an optimizer step,
            `per_device_train_batch_size` x `gradient_accumulation_steps` x processes.
        ahead: Rollouts that may be waiting in the queue when a step begins; left out, those of `max_staleness` - 1
            optimizer steps. `AsyncGRPOConfig.queue_maxsize` plays no part.
        candidates: "all", or k: k times as many prompts as `num_generations` would take of the step's rollouts, in a
            shuffled order that goes round the dataset.
        baseline, scale, weight, floor, cap, min_group, quantum, prompt_id, reward_range, allow_dataset_change: As in
            `AdaptiveGRPOCallback`.
        ledger: A file to which every rollout is appended; its steps are those of the policy.
        tools, environment_factory: Refused.

    Raises:
        UnsupportedError: tools or environments; a TRL before 1.16. Of `attach`: see there.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        reward_funcs: Callable[..., Any] | Sequence[Callable[..., Any]],
        rollouts_per_step: int | None = None,
        ahead: int | None = None,
        candidates: int | Literal["all"] | None = None,
        baseline: Baseline | None = None,
        scale: Scale | None = None,
        weight: Weight | None = None,
        floor: int | None = None,
        cap: int | None = None,
        min_group: int | None = None,
        quantum: int = 1,
        prompt_id: str = "prompt_id",
        reward_range: tuple[float, float] = (0.0, 1.0),
        ledger: str | os.PathLike[str] | None = None,
        allow_dataset_change: bool = False,
        tools: Any = None,
        environment_factory: Any = None,
    ) -> None:
        if Version(trl.__version__).release < (1, 16):
            raise UnsupportedError(
                f"TRL {trl.__version__}: AdaptiveRolloutWorker is tested with the AsyncGRPOTrainer of TRL 1.16, an "
                "experiment that changes from version to version. Install trl 1.16, or train with GRPOTrainer."
            )
        if tools or environment_factory:
            raise UnsupportedError(
                "tools and environment_factory: a rollout of several turns may become several rows, which TRL makes of "
                "it inside its own worker's process. Train them with GRPOTrainer and AdaptiveGRPOCallback."
            )
        self.policy = adaptive() if policy is None else policy
        self.reward_funcs = [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
        if not self.reward_funcs:
            raise InputError("reward_funcs is empty: give the functions that score a rollout.")
        given = {
            "candidates": candidates,
            "baseline": baseline,
            "scale": scale,
            "weight": weight,
            "floor": floor,
            "cap": cap,
            "min_group": min_group,
            "quantum": quantum,
            "reward_range": reward_range,
            "hint": None,
            "buffer": None,
        }
        needs = self.policy.needs
        # The advantages are always made here, also where GRPOTrainer's own would stay.
        given["baseline"] = baseline or needs.baseline or "group"
        self.options = Options.resolve(needs, "group", given)
        self.rollouts_per_step, self.ahead, self.prompt_id = rollouts_per_step, ahead, prompt_id
        self.ledger_path, self.allow_dataset_change = ledger, allow_dataset_change
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.trainer: Any = None
        self._version = self._groups = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._heard, self._doing = 0.0, ""

    def attach(self, trainer: Any) -> None:
        """Takes model, dataset, tokenizer and sampling from the trainer, and the beliefs into its checkpoints.

        After a resume the beliefs are those of the checkpoint; rollouts that were in the queue are lost, as with TRL's
        own worker, while what they taught the policy is not.

        Raises:
            UnsupportedError: images, rows that cannot be chosen, or a LoRA adapter that TRL loads into the server by
                name. InputError: another trainer, or one without `max_steps`. BudgetError: the budget cannot be spent.
        """
        if trainer.accelerator.is_main_process and getattr(trainer, "rollout_worker", None) is not self:
            raise InputError("The trainer has another worker: build AsyncGRPOTrainer(..., rollout_worker=worker).")
        dataset = trainer.train_dataset
        self.prompts = Prompts(dataset, self.prompt_id)
        if not self.prompts.indexable:
            raise UnsupportedError(f"The policy chooses rows, which a {type(dataset).__name__} does not give.")
        if {"image", "images", "environment"} & set(dataset.column_names):
            raise UnsupportedError(
                f"The train dataset has the columns {dataset.column_names}: images and environments are not served "
                "here. Train with GRPOTrainer and AdaptiveGRPOCallback."
            )
        if getattr(trainer, "_lora_sync", False):
            raise UnsupportedError(
                "TRL loads each version of the LoRA adapter into the vLLM server under a name of its own, which this "
                "worker does not follow. Start the server without --enable-lora: TRL then sends the merged weights."
            )
        if trainer._epoch_stop_groups is not None:
            raise InputError(
                "AsyncGRPOConfig has no max_steps: TRL would count groups, of any size, as an epoch's prompts. Set it."
            )
        self.trainer, args = trainer, trainer.args
        self._model = trainer.model.config._name_or_path  # as in TRL; the server knows it by this name
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        self._budget = self.options.generate * (self.rollouts_per_step or batch)
        self._ahead = max(0, args.max_staleness - 1) * batch if self.ahead is None else self.ahead
        self._pool = self.prompts.first_rows()
        offer = len(self._offer())
        self.options.budget(self._budget, offer, args.num_generations).check(offer)
        self._state = self.policy.state_dict()
        self._stand_before(trainer)

    # --- what TRL calls ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to make rollouts."""
        if self.trainer is None:
            raise InputError("The worker does not know its trainer: call worker.attach(trainer) before train().")
        self.ledger = None if self.ledger_path is None else LedgerWriter(self.ledger_path)
        if self.ledger is not None:
            self.ledger.resume(self.policy.estimator.step)
        self._stopping.clear()
        server = Server(self.trainer.args, self._model, self._stopping)
        self._rollouts = Rollouts(self.trainer, self.prompts, self.reward_funcs, server, self._hear)
        self._hear("beginning")
        self._thread = threading.Thread(target=self._run, name="budgetalloc-rollouts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; requests under way are left to run out, a reward function gets 15 seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=15)

    def update_model_version(self, model_version: int) -> None:
        """Says under which version the server generates from now on."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raises `RuntimeError`, with its cause, where the thread has failed or is stuck."""
        if self._error is not None:
            raise RuntimeError(f"AdaptiveRolloutWorker failed while {self._doing}; see the cause.") from self._error
        silent = time.monotonic() - self._heard
        if silent > stale_after_s + self.trainer.args.request_timeout:
            raise RuntimeError(f"AdaptiveRolloutWorker has been {self._doing} for {silent:.0f} s without a result.")

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.05 if self.rollout_buffer.qsize() > self._ahead else 0):
                if self.rollout_buffer.qsize() <= self._ahead:
                    self._step()
        except TrainingEnded:
            pass
        except BaseException as error:
            self._error = error
            logger.exception("AdaptiveRolloutWorker failed while %s", self._doing)
        finally:
            self._stopping.set()  # also for the threads that make requests
            self._rollouts.close()

    def _offer(self) -> list[Id]:
        """The prompts to choose among: all, or the next ones of a shuffled order that goes round the dataset."""
        names, candidates = list(self._pool), self.options.candidates
        if candidates == "all":
            return names
        width = candidates * max(1, self._budget // self.options.generate // self.trainer.args.num_generations)
        places = [divmod(self.policy.estimator.step * width + k, len(names)) for k in range(width)]
        rngs = {lap: np.random.default_rng([self.policy.seed, lap]) for lap, _ in places}
        orders = {lap: rng.permutation(len(names)) for lap, rng in rngs.items()}
        return list(dict.fromkeys(names[orders[lap][at]] for lap, at in places))

    def _step(self) -> None:
        """One step of the policy, whose rollouts end in the trainer's queue. One that fails teaches nothing that is
        saved."""
        offered = self._offer()
        budget = self.options.budget(self._budget, len(offered), self.trainer.args.num_generations)
        step = self.policy.begin(offered, budget)
        rollouts: list[Rollout] = []
        scores: list[FloatArray] = []
        versions: dict[Id, int] = {}  # that of a group is the oldest of its rounds
        for names_R in self._rounds(step):
            for name in names_R:
                versions.setdefault(name, self._version)
            made = self._rollouts.make(names_R, [self.trainer.args.seed, self.policy.estimator.step, len(scores)])
            scores.append(self._rollouts.score(made))
            step.observe(names_R, self.options.to_unit(total(scores[-1])))
            rollouts += made
        if not rollouts:
            raise InputError(f"{self.policy} asked for no rollouts: a step must spend its budget.")
        self._teach(step, rollouts, np.concatenate(scores), versions)

    def _rounds(self, step: Step) -> Iterator[list[Id]]:
        """The prompt of each rollout that the policy wants next."""
        while (counts_P := step.request()).any():
            if step.hinted:
                raise UnsupportedError(f"{self.policy} wants rollouts with a hint: use GRPOTrainer.")
            yield [step.ids_P[at] for at in np.repeat(np.arange(len(counts_P)), counts_P).tolist()]

    def _hear(self, doing: str | None = None) -> None:
        """A sign of life, and what is being done from now on."""
        self._heard, self._doing = time.monotonic(), doing or self._doing

    def _teach(self, step: Step, rollouts: list[Rollout], scores_RF: FloatArray, versions: dict[Id, int]) -> None:
        """Ends the step: advantages, metrics, the ledger, the queue."""
        ids_R, rewards_R = [each.name for each in rollouts], total(scores_RF)
        unit_R = self.options.to_unit(rewards_R)
        place = {name: at for at, name in enumerate(step.ids_P)}
        belief_R = step.belief_P.take(np.array([place[name] for name in ids_R], dtype=np.int64))
        step.end()
        advantages_R = self.options.advantages(rewards_R, ids_R, belief_R)
        lengths_R = [len(each.ids) for each in rollouts]
        _, group_R = factorize(ids_R)
        if self.ledger is not None:
            counts_R = np.bincount(group_R)[group_R]
            at = self.policy.estimator.step - 1
            self.ledger.append(at, ids_R, rewards_R, lengths_R, belief_R.mean, counts_R)
        metrics = {f"budgetalloc/{key}": x for key, x in group_metrics(ids_R, unit_R, belief_R).items()}
        self.metrics_queue.put(metrics | {"completions/mean_length": (sum(lengths_R), len(rollouts))})
        kept_R, rows = np.arange(len(rollouts)), self._budget // self.options.generate
        if self.policy.keep is not None and len(rollouts) > rows:
            kept_R = np.asarray(self.policy.keep(ids_R, rewards_R, rows, scores_RF))
        self._state = self.policy.state_dict()  # before the trainer can train on them, and save
        for at in kept_R.tolist():
            metrics = {"reward": rewards_R[at], "reward_std": spread(rewards_R[group_R == group_R[at]])}
            metrics |= {f"rewards/{name}": x for name, x in zip(self._rollouts.names, scores_RF[at], strict=True)}
            version, group = versions[ids_R[at]], self._groups + int(group_R[at])
            if rollouts[at].ids:  # one without a token has nothing to train on
                self.rollout_buffer.put(as_sample(rollouts[at], advantages_R[at], version, group, metrics))
        self._groups += int(group_R.max()) + 1

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _stand_before(self, trainer: Any) -> None:
        """Saving and loading, as in `AdaptiveGRPOCallback`: the beliefs are in a checkpoint's folder before TRL fills
        it."""
        save, restore = trainer._save_checkpoint, trainer._load_optimizer_and_scheduler

        @wraps(save)
        def save_all(model: Any, trial: Any) -> None:
            if trainer.accelerator.is_main_process:
                run = Path(trainer._get_output_dir(trial=trial))
                folder = run / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
                (folder / TRAINER_STATE_NAME).unlink(missing_ok=True)
                save_beliefs(folder, self._state, self.policy.name, self.prompts.fingerprint)
            save(model, trial)

        @wraps(restore)
        def restore_all(checkpoint: str | None) -> None:
            restore(checkpoint)
            if checkpoint is not None and trainer.accelerator.is_main_process:
                load_beliefs(Path(checkpoint), self.policy, self.prompts.fingerprint, self.allow_dataset_change)
                self._state = self.policy.state_dict()

        trainer._save_checkpoint, trainer._load_optimizer_and_scheduler = save_all, restore_all
