"""The rollout worker that lets a policy decide the rollout counts of TRL's experimental
`AsyncGRPOTrainer`."""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from budgetalloc.errors import InputError, check_integer
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.policies.methods import PolicyLike, policy_of
from budgetalloc.training.admission import Admission, most_ahead
from budgetalloc.training.belief_checkpoint import load_beliefs, save_beliefs
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.options import Options
from budgetalloc.training.parts import Host, Part
from budgetalloc.training.prompt_features import FeatureNames, policy_with_features
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session, rows_to_train_on
from budgetalloc.trl.checkpoints import step_of, with_load, with_save
from budgetalloc.trl.experimental.compatibility import (
    check_compatible,
    check_no_tools,
    check_policy,
    check_version,
)
from budgetalloc.trl.experimental.completions import Server
from budgetalloc.trl.experimental.flights import Flight, Flights
from budgetalloc.trl.experimental.queue_samples import samples_of
from budgetalloc.trl.experimental.sampling import CompletionSampler, names_of, shuffled_passes

__all__ = ["AdaptiveRolloutWorker"]

logger = logging.getLogger(__name__)


class AdaptiveRolloutWorker:
    """Generates the rollouts of TRL's `AsyncGRPOTrainer` in place of TRL's own worker, with counts
    decided by a policy.

        worker = AdaptiveRolloutWorker(reward_funcs=reward)
        trainer = AsyncGRPOTrainer(model, args=config, train_dataset=dataset, rollout_worker=worker)
        worker.attach(trainer)
        trainer.train()

    A thread of the trainer's main process runs the steps of the policy. In each step it decides
    counts from the rewards of all complete steps, gets completions from the vLLM server, computes
    rewards and advantages, and puts the rollouts into the trainer's queue, with the oldest model
    version of their group. Several steps are generated at once, and the queue gets them in their
    order, whichever rollouts end first (`training.admission`). A rollout without an answer within
    `AsyncGRPOConfig.request_timeout`, or whose request failed, is lost: its group is trained
    without it.

    The trainer forms batches. Its `AsyncGRPOConfig` sets the sampling parameters. The thread calls
    each reward function once per round, so reward functions need not be picklable, and share the
    CPU with the trainer.

    Args:
        policy: As in `AdaptiveGRPOCallback`. It may generate more rollouts than it keeps.
        reward_funcs: One or several; the trainer ignores its own. The reward is their sum, without
            those that return None.
        rollouts_per_step: Rollouts of one step of the policy. Default: the rollouts of an optimizer
            step, `per_device_train_batch_size` x `gradient_accumulation_steps` x processes. For a
            varying budget: a function of the policy's step and of the rollouts spent before it
            (`budgetalloc.policies.costs.pacing`).
        ahead: Most rollouts in the queue and in unfinished steps when a step begins; 0 generates
            one step at a time, after the queue is empty. Default: as many as keep `max_staleness`
            (`most_ahead`). `AsyncGRPOConfig.queue_maxsize` is not used.
        candidates: "all", or k: k times the step's rollouts divided by `num_generations`, in a
            shuffled order that cycles through the dataset.
        baseline, scale, weight, floor, cap, min_group, quantum, prompt_id, success, reward_range,
            domain, quotas, mixture, cost, features, allow_dataset_change: As in
            `AdaptiveGRPOCallback`. Quotas and a mixture need `candidates="all"`. `cost="seconds"`
            counts the server's seconds, and generates one step at a time.
        ledger: A file to which every rollout is appended; its steps are those of the policy.
        tools, environment_factory: Refused.

    Raises:
        UnsupportedError: tools or environments; a TRL before 1.16. InputError: a bad argument.
    """

    def __init__(
        self,
        policy: PolicyLike | None = None,
        *,
        reward_funcs: Callable[..., Any] | Sequence[Callable[..., Any]],
        rollouts_per_step: int | Callable[[int, int], int] | None = None,
        ahead: int | None = None,
        prompt_id: str | None = None,
        features: FeatureNames = None,
        ledger: str | os.PathLike[str] | None = None,
        allow_dataset_change: bool = False,
        tools: Any = None,
        environment_factory: Any = None,
        parts: Sequence[Part] = (),
        **options: Any,
    ) -> None:
        check_version()
        check_no_tools(tools, environment_factory)
        check_ledger(ledger)
        self.policy = policy_of("adaptive" if policy is None else policy)
        self.reward_funcs = [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
        if not self.reward_funcs:
            raise InputError("reward_funcs is empty: give the functions that score a rollout.")
        # Unlike with GRPOTrainer, advantages are always computed here.
        given = {"baseline": self.policy.needs.baseline or "group"} | options
        self.options = Options.resolve(self.policy.needs, "group", given, trl=False)
        check_policy(self.policy, self.options)
        names = names_of(self.reward_funcs)
        self.session = Session(
            self.policy, names, [1.0] * len(names), resolved=self.options, parts=parts
        )
        self.rollouts_per_step, self.ahead, self.prompt_id = rollouts_per_step, ahead, prompt_id
        self.features, self.ledger_path, self.allow_dataset_change = (
            features,
            ledger,
            allow_dataset_change,
        )
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.trainer: Any = None
        self._version = self._groups = self._spent = 0
        self._admission: Admission[Flight] = Admission()
        # held while the policy learns, and while its state is saved
        self._learning = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._last_progress, self._doing = 0.0, ""

    def attach(self, trainer: Any) -> None:
        """Takes model, dataset, tokenizer and sampling parameters from the trainer. Its checkpoints
        get the beliefs.

        A resume restores the beliefs. As with TRL's own worker, rollouts in the queue are lost, but
        the beliefs keep what they learned from them.

        Raises:
            UnsupportedError: images, rows that cannot be chosen, or a LoRA adapter that TRL loads
                into the server by name. InputError: another trainer, or one without `max_steps`.
                BudgetError: the budget cannot be spent.
        """
        if (
            trainer.accelerator.is_main_process
            and getattr(trainer, "rollout_worker", None) is not self
        ):
            raise InputError(
                "The trainer has another worker: build AsyncGRPOTrainer(..., "
                "rollout_worker=worker)."
            )
        self.prompts = Prompts(trainer.train_dataset, self.prompt_id)
        check_compatible(trainer, self.prompts)
        main = trainer.accelerator.is_main_process
        self.policy = policy_with_features(
            self.policy, self.prompts, self.features, self.ledger_path, quiet=not main
        )
        self.session.policy = self.policy
        self.trainer, args = trainer, trainer.args
        # as in TRL; the server knows it by this name
        self._model = trainer.model.config._name_or_path
        self._batch = (
            args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        )
        self.session.pool, self.session.pool_size = self.prompts.pool, len(self.prompts.pool)
        sizes = (self._rows(),)
        self.session.attach(Host(self.prompts, sizes, args.num_generations, measures_seconds=True))
        self._begin(self._rows())  # raises where the budget cannot be spent
        trainer._save_checkpoint = with_save(trainer, self._save, lambda: main)
        trainer._load_optimizer_and_scheduler = with_load(trainer, self._load, lambda: main)

    # --- what TRL calls
    # ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the thread that generates rollouts."""
        if self.trainer is None:
            raise InputError(
                "The worker is attached to no trainer: call worker.attach(trainer) before train()."
            )
        step, texts_of = self.policy.estimator.step, self.prompts.texts
        self.session.written = (
            [] if self.ledger_path is None else [LogWriter(self.ledger_path, step, texts_of)]
        )
        self._stopping.clear()
        while self.session.number > step:  # steps that an earlier training did not finish
            self.session.resume()
        server = Server(self.trainer.args, self._model, self._stopping)
        sampler = CompletionSampler(self.trainer, self.prompts, self.reward_funcs, self._hear)
        self._admission = Admission()
        flights = Flights(self.session, self._admission, sampler, server, self.trainer.args.seed)
        self._hear("beginning")
        self._thread = threading.Thread(
            target=self._run, args=(flights,), name="budgetalloc-rollouts", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread without waiting for requests; waits up to 15 seconds for a reward
        function."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=15)

    def update_model_version(self, model_version: int) -> None:
        """Sets the model version with which the server generates from now on."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raises `RuntimeError`, with its cause, if the thread has failed or makes no progress."""
        if self._error is not None:
            raise RuntimeError(
                f"AdaptiveRolloutWorker failed while {self._doing}; see the cause."
            ) from self._error
        silent = time.monotonic() - self._last_progress
        if silent > stale_after_s + self.trainer.args.request_timeout:
            raise RuntimeError(
                f"AdaptiveRolloutWorker has been {self._doing} for {silent:.0f} s without a result."
            )

    # --- the thread
    # -------------------------------------------------------------------------------------------------

    def _run(self, flights: Flights) -> None:
        try:
            while not self._stopping.is_set():
                if self._may_begin():
                    rows = self._rows()
                    self._begin(rows)
                    flights.begin(rows, self._version)
                flights.wait(timeout=0 if self._may_begin() else 0.05)
                if (flight := flights.complete(self._version)) is not None:
                    self._deliver(flight, flights.sampler.names)
        except BaseException as error:
            self._error = error
            logger.exception("AdaptiveRolloutWorker failed while %s", self._doing)
        finally:
            self._stopping.set()  # also for the threads that make requests
            flights.sampler.close()

    def _hear(self, doing: str | None = None) -> None:
        """Records that the thread is alive, and its current activity."""
        self._last_progress, self._doing = time.monotonic(), doing or self._doing

    def _may_begin(self) -> bool:
        ahead = self.ahead
        if ahead is None:
            ahead = most_ahead(self.trainer.args.max_staleness, self._batch, self._rows())
        if self.options.cost == "seconds" and len(self._admission):
            return False
        return self._admission.may_begin(self.rollout_buffer.qsize(), ahead)

    def _deliver(self, flight: Flight, names: list[str]) -> None:
        """Gives the oldest step to the trainer. The policy learns last: if anything raises, its
        state is unchanged."""
        batch = self.session.record()
        advantages_R = self.options.advantages(batch).values_R
        kept_R = rows_to_train_on(self.policy, batch, flight.rollouts).tolist()
        about = flight.completions, advantages_R, flight.versions, self._groups, names
        samples = list(samples_of(batch, kept_R, *about))
        with self._learning:  # before the trainer can train on the rollouts, and save
            metrics = self.session.end(advantages_R).metrics
            self._spent += flight.rollouts
        self._admission.admit()
        metrics = {f"budgetalloc/{key}": value for key, value in metrics.items()}
        self.metrics_queue.put(
            metrics | {"completions/mean_length": (int(batch.lengths_R.sum()), len(batch))}
        )
        for sample in samples:
            self.rollout_buffer.put(sample)
        self._groups += len(batch.counts_G)

    @property
    def _planned(self) -> int:
        """Rollouts of all steps that have begun."""
        return self._spent + self._admission.rollouts

    def _rows(self) -> int:
        """The rollouts of the next step that are trained on."""
        rows = self.rollouts_per_step
        if callable(rows):
            rows = check_integer(
                "rollouts_per_step(step, spent)", rows(self.session.number, self._planned), 1
            )
        return rows or self._batch

    def _begin(self, rows: int) -> None:
        """Begins the policy's next step, whose candidates are all prompts or the next ones of a
        shuffled order."""
        size, bounds = self.trainer.args.num_generations, self.options.bounds
        if bounds.candidates == "all":
            self.session.begin((), rows, size)
            return
        width = bounds.candidates * max(1, rows // size)
        paced = callable(self.rollouts_per_step)
        start = (
            bounds.candidates * (self._planned // size) if paced else self.session.number * width
        )
        ids_P = shuffled_passes(self.session.pool, start, width, self.policy.seed)
        generated = rows if self.session.uniform else self.options.generate * rows
        self.session.begin_among(ids_P, bounds.budget(generated, len(ids_P), size), rows, size)

    # --- checkpoints
    # ------------------------------------------------------------------------------------------------

    def _save(self, folder: Path) -> None:
        fingerprint, step = self.prompts.fingerprint, self.trainer.state.global_step
        with self._learning:
            save_beliefs(folder, self.session, fingerprint, step, spent=self._spent)

    def _load(self, checkpoint: Path) -> None:
        fingerprint, step = self.prompts.fingerprint, step_of(checkpoint)
        about = load_beliefs(checkpoint, self.session, fingerprint, self.allow_dataset_change, step)
        self._spent = int(about.get("spent", 0))
