"""The rollout worker that lets a policy decide the rollout counts of TRL's experimental
`AsyncGRPOTrainer`."""

import asyncio
import inspect
import logging
import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import trl
from packaging.version import Version

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.contrib.admission import Admission, Plan, most_ahead
from budgetalloc.contrib.completions import Completion, Server
from budgetalloc.errors import InputError, UnsupportedError, check_integer, refuse
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.belief_checkpoint import load_beliefs, save_beliefs
from budgetalloc.training.clock import Clock
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.options import Options
from budgetalloc.training.parts import Host, Part
from budgetalloc.training.policy_like import PolicyLike, resolve_policy
from budgetalloc.training.prompt_features import FeatureNames, policy_with_features
from budgetalloc.training.prompts import Prompts, turns
from budgetalloc.training.session import Session, rows_to_train_on
from budgetalloc.trl.checkpoints import SavesBeliefs, step_of
from budgetalloc.trl.mixin import SAVING, mix_in
from budgetalloc.trl.step import GROUP, without_group

logger = logging.getLogger(__name__)
_OTHERS = ("policy", "rollouts_per_step", "ahead", "prompt_id", "ledger", "parts")
_GIVEN = ("prompt", "completion", "completion_ids")  # columns that reward functions get otherwise


@dataclass(eq=False)
class _Flight(Plan[Completion]):
    """A step of the policy whose rollouts are being generated."""

    number: int = 0
    # the model's version and the trainer's step when each prompt was first requested
    asked: dict[Id, tuple[int, int]] = field(default_factory=dict)
    completions: list[Completion] = field(default_factory=list)  # of the rounds that were observed
    error: Exception | None = None  # why a rollout was lost, if one was
    rounds: int = 0


class _Buffer(queue.Queue[Any]):
    """The trainer's queue, which passes on what else is known of each rollout that is taken."""

    taken: Callable[..., None]

    def get(self, *args: Any, **named: Any) -> Any:
        each = super().get(*args, **named)
        self.taken(*each)
        return each[0]


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
    order, whichever rollouts end first (`contrib.admission`). A rollout without an answer within
    `AsyncGRPOConfig.request_timeout`, or whose request failed, is lost: its group is trained
    without it, beliefs learn nothing from it, and it is charged at its expected cost.

    The trainer forms batches. Its `AsyncGRPOConfig` sets the sampling parameters. The thread calls
    each reward function once per round, so reward functions need not be picklable, and share the
    CPU with the trainer.

    Args:
        policy: As in `AdaptiveGRPOCallback`. It may generate more rollouts than it keeps.
        reward_funcs: One or several; the trainer ignores its own. The reward is their sum, without
            those that return None.
        rollouts_per_step: Rollouts of one step of the policy. Default: the rollouts of an optimizer
            step, `per_device_train_batch_size` x `gradient_accumulation_steps` x processes. For a
            varying budget: a function of the policy's step and of the rollouts spent before it,
            such as a `budgetalloc.contrib.pacing.Horizon`.
        ahead: Most rollouts in the queue and in unfinished steps when a step begins; 0 generates
            one step at a time, after the queue is empty. Default: as many as keep `max_staleness`
            (`most_ahead`). `AsyncGRPOConfig.queue_maxsize` is not used.
        parts, prompt_id, features, allow_dataset_change: As in `AdaptiveGRPOCallback`.
        ledger: A file to which every rollout is appended; its steps are those of the policy.
        options: The fields of `budgetalloc.Options` by name. `candidates=k` are k times the step's
            rollouts divided by `num_generations`, in a shuffled order that cycles through the
            dataset. `cost="seconds"` counts the server's seconds, and generates one step at a time.

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
        parts: Sequence[Part] = (),
        prompt_id: str | None = None,
        features: FeatureNames = None,
        ledger: str | os.PathLike[str] | None = None,
        allow_dataset_change: bool = False,
        **options: Any,
    ) -> None:
        if Version(trl.__version__).release < (1, 16):
            raise UnsupportedError(
                f"TRL {trl.__version__}: AdaptiveRolloutWorker is tested with the AsyncGRPOTrainer "
                "of TRL 1.16, an experiment that changes from version to version. Install trl "
                "1.16, or train with GRPOTrainer."
            )
        if options.pop("tools", None) or options.pop("environment_factory", None):
            raise UnsupportedError(
                "tools and environment_factory: TRL may split a rollout of several turns into "
                "several rows, inside its own worker's process. Train with GRPOTrainer and "
                "AdaptiveGRPOCallback instead."
            )
        check_ledger(ledger)
        self.policy = resolve_policy("adaptive" if policy is None else policy)
        self.reward_funcs = [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
        if not self.reward_funcs:
            raise InputError("reward_funcs", "is empty: give the functions that score a rollout.")
        # Unlike with GRPOTrainer, advantages are always computed here.
        given = {"baseline": self.policy.needs.baseline or "group"} | options
        self.options = Options.resolve(self.policy.needs, "group", given, trl=False, others=_OTHERS)
        refused = {
            f"{self.policy} has a plan: give the worker the rollouts of each step, "
            "rollouts_per_step=, and a policy without a plan.": self.policy.plan,
            f"cost={self.options.cost!r}: the worker's rollouts report no costs. Use "
            "cost='tokens', or GRPOTrainer with AdaptiveGRPOCallback.": isinstance(
                self.options.cost, Mapping
            ),
        }
        refuse(refused)
        self._names = [getattr(x, "__name__", type(x).__name__) for x in self.reward_funcs]
        weights = [1.0] * len(self._names)
        self.session = Session(
            self.policy, self._names, weights, resolved=self.options, parts=parts
        )
        self.rollouts_per_step, self.ahead, self.prompt_id = rollouts_per_step, ahead, prompt_id
        self.features, self.ledger_path = features, ledger
        self.allow_dataset_change = allow_dataset_change
        self.rollout_buffer = _Buffer()
        self.rollout_buffer.taken = self._take
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.trainer: Any = None
        self._version = self._groups = self._spent = 0
        self._taken = deque[tuple[Id, int, int]]()  # prompts, ages and lags
        self._admission: Admission[_Flight] = Admission()
        # held while the policy learns, and while its state is saved
        self._learning = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._warned = False
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
        main = trainer.accelerator.is_main_process
        if main and getattr(trainer, "rollout_worker", None) is not self:
            raise InputError(
                "The trainer has another worker: build AsyncGRPOTrainer(..., "
                "rollout_worker=worker)."
            )
        self.prompts = Prompts(trainer.train_dataset, self.prompt_id)
        _check_trainer(trainer, self.prompts)
        self.policy = self.session.policy = policy_with_features(
            self.policy, self.prompts, self.features, self.ledger_path, quiet=not main
        )
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
        mix_in(trainer, SavesBeliefs, *SAVING)
        trainer._budgetalloc = self if main else None

    # What TRL calls:

    def start(self) -> None:
        """Starts the thread that generates rollouts."""
        if self.trainer is None:
            raise InputError(
                "The worker is attached to no trainer: call worker.attach(trainer) before train()."
            )
        step, path = self.policy.estimator.step, self.ledger_path
        writers = [] if path is None else [LogWriter(path, step, self.prompts.texts)]
        self.session.written = writers
        self._stopping.clear()
        while self.session.number > step:  # steps that an earlier training did not finish
            self.session.resume()
        self._server = Server(self.trainer.args, self._model, self._stopping)
        # one for all calls, because a reward function may keep it
        self._loop = asyncio.new_event_loop()
        self._admission = Admission()
        self._hear("beginning")
        self._thread = threading.Thread(target=self._run, name="budgetalloc-rollouts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread without waiting for requests; waits up to 15 seconds for a reward
        function."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=15)
        self._tell_taken()

    def _take(self, sample: Any, prompt: Id, step: int) -> None:
        """Notes that the trainer takes a rollout, unless it drops it as too old or too long."""
        args, lag = self.trainer.args, self._version - sample.model_version
        if lag <= args.max_staleness and not 0 < args.token_budget < len(sample.input_ids):
            self._taken.append((prompt, self.trainer.state.global_step - step, lag))

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

    # The thread:

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._may_begin():
                    rows = self._rows()
                    self._begin(rows)
                    flight = _Flight(rows, number=self.session.step.number)
                    if not self._request(flight):
                        raise InputError(f"{self.policy} requested no rollouts in a step.")
                    self._admission.begin(flight)
                self._wait(timeout=0 if self._may_begin() else 0.05)
                if (oldest := self._admission.next()) is not None and self._observe(oldest):
                    self._deliver(oldest)
        except BaseException as error:
            self._error = error
            logger.exception("AdaptiveRolloutWorker failed while %s", self._doing)
        finally:
            self._stopping.set()  # also for the threads that make requests
            self._loop.close()

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

    def _request(self, flight: _Flight) -> bool:
        """Sends the step's next requests, and suspends it; False if the policy wants no more."""
        ids_R = self.session.request()
        if not ids_R:
            return False
        self._hear(f"generating {len(ids_R)} rollouts")
        now = self._version, self.trainer.state.global_step
        flight.asked = dict.fromkeys(ids_R, now) | flight.asked
        for clock in self._clocks():
            clock.go()
        key = [self.trainer.args.seed, flight.number, flight.rounds]
        rows_R = self.prompts.rows_in_turn(list(zip(ids_R, turns(ids_R, key), strict=True)))
        tokens = {
            prompt: self._tokens(row["prompt"])
            for prompt, row in dict(zip(ids_R, rows_R, strict=True)).items()
        }
        # Without a seed each, vLLM's engines would draw the same completions.
        seeds_R = np.random.default_rng(key).integers(2**63, size=len(ids_R)).tolist()
        for at, *each in zip(flight.ask(len(ids_R)), ids_R, rows_R, seeds_R, strict=True):
            prompt, row, seed = each
            self._server.submit((flight, at), Completion(prompt, row, tokens[prompt], seed))
        flight.rounds += 1
        self.session.suspend()
        return True

    def _clocks(self) -> list[Clock]:
        return [part.clock for part in self.session.parts if part.clock is not None]

    def _tokens(self, prompt: Any) -> list[int]:
        tokenizer, template = self.trainer.processing_class, self.trainer.args.chat_template_kwargs
        if isinstance(prompt, str):
            return list(tokenizer(prompt)["input_ids"])
        made = {"return_dict": False, "add_generation_prompt": True, **(template or {})}
        return list(tokenizer.apply_chat_template(prompt, **made))

    def _wait(self, timeout: float) -> None:
        """Takes a completion from the server, if one comes within `timeout` seconds."""
        ended = self._server.ended(timeout)
        if ended is None:
            return
        (flight, number), completion, error = ended
        flight.take(number, completion if error is None else None)
        flight.error = error or flight.error
        if error is not None and not self._warned:
            self._warned = True
            logger.warning(
                "A rollout of prompt %r is lost (%s), and its group is trained without it. "
                "budgetalloc/lost counts such rollouts.",
                completion.prompt,
                error,
            )
        self._hear()

    def _observe(self, flight: _Flight) -> bool:
        """Makes the oldest step the session's current one, and observes its last round. False if
        the policy then requests another round.

        Raises:
            Exception: the error of the last request, if none of the step's rollouts came.
        """
        for clock in self._clocks():  # what follows is not the server's time
            clock.stop()
        self.session.resume()
        came = flight.came()
        flight.completions += came
        if flight.error is not None and not flight.completions:  # the server is gone
            raise flight.error
        self.session.observe(
            [each.prompt for each in came],
            self._score(came),
            np.array([len(each.ids) for each in came], dtype=np.int64),
            prompt_lengths_R=np.array([len(each.prompt_ids) for each in came], dtype=np.int64),
        )
        return not self._request(flight)

    def _score(self, came: list[Completion]) -> FloatArray:
        """The reward of each rollout by each reward function, shape (R, F), NaN for None."""
        if not came:
            return np.zeros((0, len(self._names)))
        rows = [each.row for each in came]
        given: dict[str, list[Any]] = {
            key: [row[key] for row in rows] for key in rows[0] if key not in _GIVEN
        }
        given["prompts"] = [row["prompt"] for row in rows]
        given["completions"] = [self._text(each) for each in came]
        given["completion_ids"] = [each.ids for each in came]
        given.setdefault(GROUP, [each.prompt for each in came])
        answers = []
        for func, name in zip(self.reward_funcs, self._names, strict=True):
            self._hear(f"scoring {len(came)} rollouts with {name}")
            answers.append(without_group(func)(**given))
        answers = self._loop.run_until_complete(_settled(answers))
        self._hear()
        for name, answer in zip(self._names, answers, strict=True):
            if len(answer) != len(came):
                raise InputError(
                    f"{name} returned {len(answer)} rewards for {len(came)} completions: return "
                    "one for each.",
                    argument=name,
                )
        return np.array([[math.nan if x is None else float(x) for x in each] for each in answers]).T

    def _text(self, completion: Completion) -> Any:
        """The text or messages that reward functions see."""
        text = self.trainer.processing_class.decode(completion.ids, skip_special_tokens=True)
        plain = isinstance(completion.row["prompt"], str)
        return text if plain else _as_messages("assistant", text)

    def _deliver(self, flight: _Flight) -> None:
        """Gives the oldest step to the trainer. The policy learns last: if anything raises, its
        state is unchanged."""
        batch = self.session.record()
        advantages_R = self.options.advantages(batch).values_R
        kept_R = rows_to_train_on(self.policy, batch, flight.rollouts).tolist()
        samples = list(self._samples(flight, batch, kept_R, advantages_R))
        with self._learning:  # before the trainer can train on the rollouts, and save
            # none of them is trained on yet
            ended = self.session.end(advantages_R[kept_R], np.zeros(0, int))
            found = ended.metrics | self._tell_taken()
            metrics: dict[str, Any] = {f"budgetalloc/{key}": x for key, x in found.items()}
            self._spent += flight.rollouts
        self._admission.admit()
        metrics["completions/mean_length"] = int(batch.lengths_R.sum()), len(batch)
        self.metrics_queue.put(metrics)
        for sample in samples:
            self.rollout_buffer.put(sample)
        self._groups += len(batch.counts_G)

    def _tell_taken(self) -> dict[str, float]:
        """Tells the parts what the trainer has taken since the last call; returns metrics."""
        taken = [self._taken.popleft() for _ in range(len(self._taken))]
        metrics = dict[str, float]()
        for part in self.session.parts if taken else ():
            ids_R, age_R, lag_R = zip(*taken, strict=True)
            metrics |= part.trained(self.policy.estimator.step, ids_R, age=age_R, lag=lag_R)
        return metrics

    def _samples(
        self, flight: _Flight, batch: Rollouts, kept_R: list[int], advantages_R: FloatArray
    ) -> Iterator[Any]:
        """The rollouts to train on, with the metrics that TRL logs, their prompt and the trainer's
        step when it was requested; rollouts without tokens are left out."""
        # experimental: TRL may move it
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        for at in kept_R:
            each, group = flight.completions[at], int(batch.group_R[at])
            if not each.ids:
                continue
            scored = batch.rewards_R[(batch.group_R == group) & ~np.isnan(batch.rewards_R)]
            metrics = {
                f"rewards/{k}": x for k, x in zip(self._names, batch.scores_RF[at], strict=True)
            }
            metrics["reward"] = batch.rewards_R[at]
            metrics["reward_std"] = scored.std() if len(scored) else math.nan
            before, after = len(each.prompt_ids), len(each.ids)
            version, step = flight.asked[each.prompt]
            sample = RolloutSample(
                prompt=_as_messages("user", each.row["prompt"]),
                completion=_as_messages("assistant", self._text(each)),
                input_ids=np.array(each.prompt_ids + each.ids, dtype=np.int64),
                completion_mask=np.array([0] * before + [1] * after, dtype=np.int64),
                old_log_probs=np.array([0.0] * before + each.log_probs, dtype=np.float32),
                advantage=float(advantages_R[at]),
                model_version=version,
                group_id=self._groups + group,
                metrics={name: float(x) for name, x in metrics.items()},
                enqueued_at=time.time(),
            )
            yield sample, each.prompt, step

    @property
    def _planned(self) -> int:
        return self._spent + self._admission.rollouts

    def _rows(self) -> int:
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
        ids_P = _shuffled_passes(self.session.pool, start, width, self.policy.seed)
        generated = rows if self.session.uniform else self.options.generate * rows
        self.session.begin_among(ids_P, bounds.budget(generated, len(ids_P), size), rows, size)

    # Checkpoints:

    def _save(self, folder: Path) -> None:
        step = self.trainer.state.global_step
        with self._learning:
            save_beliefs(folder, self.session, self.prompts, step, spent=self._spent)

    def _load(self, checkpoint: Path) -> None:
        step, allowed = step_of(checkpoint), self.allow_dataset_change
        about = load_beliefs(checkpoint, self.session, self.prompts, allowed, step)
        self._spent = int(about.get("spent", 0))


async def _settled(answers: list[Any]) -> list[Any]:
    """The results, with all awaitables awaited together."""
    waiting = {at: answer for at, answer in enumerate(answers) if inspect.isawaitable(answer)}
    results = dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
    return [results.get(at, answer) for at, answer in enumerate(answers)]


def _as_messages(role: str, content: Any) -> list[dict[str, Any]]:
    """A text as a conversation of one message; a conversation stays unchanged."""
    return [{"role": role, "content": content}] if isinstance(content, str) else list(content)


def _check_trainer(trainer: Any, prompts: Prompts) -> None:
    """Raises for a dataset or a setting of the trainer that the worker does not support."""
    dataset = trainer.train_dataset
    columns = getattr(dataset, "column_names", None) or []
    unseen = {"image", "images", "environment"} & set(columns)
    refused = {
        f"The train dataset is a {type(dataset).__name__}, from which the policy cannot choose "
        "rows. Pass a datasets.Dataset.": not prompts.indexable,
        f"The train dataset has the columns {columns}: AdaptiveRolloutWorker supports neither "
        "images nor environments. Train with GRPOTrainer and AdaptiveGRPOCallback instead.": unseen,
        "TRL loads each version of the LoRA adapter into the vLLM server under a new name, which "
        "this worker does not use. Start the server without --enable-lora: TRL then sends the "
        "merged weights.": getattr(trainer, "_lora_sync", False),
    }
    refuse(refused)
    if trainer._epoch_stop_groups is not None:
        raise InputError(
            "AsyncGRPOConfig has no max_steps: TRL would count groups of any size as an epoch's "
            "prompts. Set max_steps."
        )
    prompts.check()


def _shuffled_passes(ids_P: Sequence[Id], start: int, width: int, seed: int) -> list[Id]:
    """The distinct prompts at `width` positions from `start` on, in an order that is reshuffled at
    each pass.

    >>> ids_P = ["a", "b", "c"]
    >>> _shuffled_passes(ids_P, 0, 3, seed=0), _shuffled_passes(ids_P, 2, 2, seed=0)
    (['c', 'a', 'b'], ['b', 'c'])
    """
    places = [divmod(start + k, len(ids_P)) for k in range(width)]
    orders = {lap: np.random.default_rng([seed, lap]).permutation(len(ids_P)) for lap, _ in places}
    return list(dict.fromkeys(ids_P[orders[lap][at]] for lap, at in places))
