"""The callback that lets a policy decide the rollout counts of TRL's `GRPOTrainer`, step by
step."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.policies import Policy
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.belief_checkpoint import (
    check_texts,
    keep_texts,
    load_beliefs,
    save_beliefs,
)
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.options import Options, other_scale
from budgetalloc.training.parts import Host, Part
from budgetalloc.training.policy_like import PolicyLike, resolve_policy
from budgetalloc.training.prompt_features import FeatureNames, policy_with_features
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session
from budgetalloc.trl.block_rewards import BlockRewards
from budgetalloc.trl.checkpoints import restore_order, step_of
from budgetalloc.trl.compatibility import (
    broken_assumptions,
    check_budget,
    check_compatible,
    check_only_one,
    check_trainer,
    no_decision,
    unaligned_saves,
    unnamed_tasks,
    unrecorded,
)
from budgetalloc.trl.mixin import SAVING, AdaptiveMixin, in_front, mix_in
from budgetalloc.trl.own_generation import WHOLE
from budgetalloc.trl.patching import patched_attribute, timed_steps
from budgetalloc.trl.processes import check_same_arguments, same_everywhere
from budgetalloc.trl.step import Generate, Rows, Training, run_step
from budgetalloc.trl.trackers import Trackers
from budgetalloc.trl.vllm_seeds import one_text_warning

logger = logging.getLogger(__name__)
OTHERS = ("policy", "parts", "prompt_id", "features", "ledger", "allow_dataset_change")


class AdaptiveGRPOCallback(TrainerCallback):  # type: ignore[misc]
    """Lets an allocation policy decide how many rollouts each prompt gets.

    Attach it by `trainer.add_callback(AdaptiveGRPOCallback(trainer))`. Before each generation the
    policy decides the counts from all rewards so far. Every generation batch has the number of rows
    that `GRPOConfig` sets; only their assignment to prompts changes.
    (`AdaptiveRolloutWorker(rollouts_per_step=)` supports a budget that varies.) Neither evaluation
    nor the steps of an epoch change. With `candidates` other than 1 an epoch need not visit every
    prompt.

    Metrics go to the trainer's log. W&B, trackio and TensorBoard, if listed in `report_to`, also
    get histograms of the counts and of the predicted success rates, and a table of the 20 prompts
    with the most tokens so far.

    Args:
        trainer: A `trl.GRPOTrainer`.
        policy: The allocation policy, `budgetalloc.adaptive()` by default; the name of a method; or
            a function that builds a policy.
        parts: What else takes part in each step (`budgetalloc.Part`), such as
            `contrib.domains.Domains("subject", {"math": (0.3, 0.5)})`.
        prompt_id: The dataset column with the ids of prompts. Default: "prompt_id" if there is one,
            else a hash of the prompt. Rows with the same id are one prompt and must have the same
            prompt text; its rollouts use them in turn.
        features: By which prompts share beliefs: "text", columns, `Path`s of earlier runs, or
            `Features`.
        ledger: A file to which every rollout is appended; see `budgetalloc.logs.ledger`. The
            beginning of each prompt's text is written once, to a file next to it that ends in
            .prompts, for `budgetalloc report`.
        allow_dataset_change: Resume with another train dataset than the checkpoint's; known prompts
            keep their beliefs.
        options: The fields of `budgetalloc.Options` by name, such as `floor=2`, `success="correct"`
            or `metrics="all"`.

    Raises:
        UnsupportedError: not a `GRPOTrainer`; a version of TRL without the methods needed; an
            option that would give wrong results. InputError: a bad argument; one id with two
            prompts; fewer rows than a generation batch takes; a second callback of this kind.
            BudgetError: floor, cap, min_group and quantum contradict each other, or the prompts of
            a step cannot spend its rollouts.
    """

    def __init__(
        self,
        trainer: Any,
        policy: PolicyLike | None = None,
        *,
        parts: Sequence[Part] = (),
        prompt_id: str | None = None,
        features: FeatureNames = None,
        ledger: str | os.PathLike[str] | None = None,
        allow_dataset_change: bool = False,
        **options: Any,
    ) -> None:
        check_trainer(trainer)
        self.trainer = trainer
        self.policy = resolve_policy("adaptive" if policy is None else policy)
        needs, scale = self.policy.needs, trainer.scale_rewards
        self.options = Options.resolve(needs, scale, options, others=OTHERS)
        main = trainer.accelerator.is_main_process
        check_ledger(ledger, writes=main)
        if main and (other := other_scale(self.policy, self.options)):
            logger.warning("%s", other)
        named = self.options.baseline is not None or self.options.shadow is not None
        tasks = getattr(trainer, "environment_factories", None) is not None
        self.prompts = Prompts(trainer.train_dataset, prompt_id, required=named and not tasks)
        if named and (unnamed := unnamed_tasks(trainer, self.prompts)):
            raise unnamed
        self.policy = policy_with_features(self.policy, self.prompts, features, ledger, not main)
        names, weights = trainer.reward_func_names, trainer.reward_weights.tolist()
        self.session = Session(
            self.policy, names, weights, resolved=self.options, quiet=not main, parts=parts
        )
        self._unobserved = self._check(self.policy, self.options, ledger)
        rollouts, group = trainer.args.generation_batch_size, trainer.num_generations
        check = self._check_as_if_attached
        host = Host(self.prompts, (rollouts,), group, check, measures_seconds=True)
        self.session.attach(host)
        self.trackers = (
            None if self._unobserved else Trackers.of(trainer, self.policy, self.prompts.texts)
        )
        if self.trackers is not None:
            self.session.parts.append(self.trackers)
        self.ledger_path = ledger
        # what these read of the dataset does not follow it
        self._named_dataset = features is not None or parts or self.options.domain is not None
        self._allow_dataset_change = allow_dataset_change
        self.batch: Rollouts | None = None
        """The record of the last step, for other callbacks."""
        self._training: Training | None = None
        self._unrecorded = False  # whether a warning about a batch without a record was logged
        mix_in(trainer, AdaptiveMixin, "train", *SAVING)

    def _check(self, policy: Policy, options: Options, ledger: Any = None) -> str | None:
        """Raises if the policy cannot be attached; returns why it cannot observe, if so."""
        unobserved = check_compatible(self.trainer, policy, options, self.prompts, ledger)
        if unobserved is None:
            rows, group = self.trainer.args.generation_batch_size, self.trainer.num_generations
            check_budget(options, self.prompts, rows, group)
        return unobserved

    def _check_as_if_attached(self, policy: Policy, options: Options) -> None:
        unobserved = self._check(policy, options) or self.prompts.unnamed_row()
        if unobserved is not None:
            raise UnsupportedError(str(unobserved))

    def _save(self, folder: Path) -> None:
        if self in self.trainer.callback_handler.callbacks:
            save_beliefs(folder, self.session, self.prompts, self.trainer.state.global_step)

    def _load(self, folder: Path) -> None:
        allowed, step = self._allow_dataset_change, step_of(folder)
        load_beliefs(folder, self.session, self.prompts, allowed, step)

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """While `train` runs."""
        with patched_attribute(self.trainer, "_budgetalloc", self), ExitStack() as self._until_end:
            try:
                yield
            finally:
                self._training = None
                keep_texts(self.policy, self.prompts)

    def _check_deciding(self) -> None:
        """Raises if `train` was called before the callback was there."""
        if self.trainer._budgetalloc is not self:
            raise InputError(
                "The AdaptiveGRPOCallback was added after trainer.train() had been called. Make it "
                "and add it before: it takes part in train() from its beginning.",
                argument="trainer",
            )

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        """From now on the policy decides."""
        trainer = self.trainer
        check_only_one(trainer, self, state)
        if self._unobserved is not None:
            logger.warning("%s", self._unobserved)
            return
        self._check_deciding()
        speaks = not self.options.keep_batch and not self.session.quiet
        if speaks:
            for text in broken_assumptions(trainer, self.options, self.prompts):
                logger.warning("%s", text)
        elif not self.session.quiet and (copies := one_text_warning(trainer)):
            logger.warning("%s", copies)
        if unaligned := unaligned_saves(trainer):
            logger.warning("%s", unaligned)
        restore_order(trainer, train_dataloader)
        self._begun, self._called = state.global_step, False
        for part in self.session.parts:
            part.start()
            if part.clock is not None:
                self._until_end.enter_context(timed_steps(trainer.callback_handler, part.clock))
        if trainer.accelerator.num_processes > 1:
            check_same_arguments(trainer.accelerator, same_everywhere(self.session, self.prompts))
        path = self.ledger_path if trainer.accelerator.is_main_process else None
        session = self.session
        session.written = (
            [] if path is None else [LogWriter(path, state.global_step, self.prompts.texts)]
        )
        session.pool = () if self.options.bounds.candidates == 1 else self.prompts.pool
        listed = self.prompts.indexable and getattr(trainer.train_dataset, "column_names", None)
        merges = listed and not self.options.keep_batch and trainer.accelerator.is_main_process
        if merges and (shared := self.prompts.shared_ids_warning()):
            logger.warning(shared)
        session.pool_size = len(session.pool) or (len(self.prompts.pool) if listed else 0)
        self._training = Training(
            trainer=trainer,
            session=session,
            prompts=self.prompts,
            blocks=BlockRewards(trainer.num_generations) if speaks else None,
        )
        self._until_end.enter_context(in_front(trainer, WHOLE))

    def _step(self, inputs: Rows, generate: Generate) -> dict[str, Any]:
        """TRL's batch, by `generate`, which is TRL's method or what it was replaced by."""
        trainer, training = self.trainer, self._training
        if training is not None and self not in trainer.callback_handler.callbacks:
            training = self._training = None
            logger.warning(
                "The AdaptiveGRPOCallback was removed before step %s: from now on TRL generates %s "
                "rollouts of each prompt, and checkpoints hold no beliefs.",
                trainer.state.global_step,
                trainer.num_generations,
            )
        # A function of other code, which `generate` may be, may call the trainer's method again.
        with patched_attribute(trainer, "_budgetalloc", None):
            if training is None:
                return generate(inputs)
            self._called = True
            output, self.batch = run_step(training, inputs, generate)
        if self.batch is None and not self._unrecorded:
            self._unrecorded = True
            logger.warning("%s", unrecorded(trainer, self.policy))
        return output

    def _follow(self) -> bool:
        """Takes what may have changed since the callback was made, or raises; returns whether the
        policy observes this training."""
        trainer = self.trainer
        if trainer.train_dataset is not self.prompts.dataset:
            if self.options.bounds.candidates != 1 or self._named_dataset:
                raise InputError(
                    "train_dataset",
                    "was replaced after the callback was made, and the policy would choose rows of "
                    "the old one. Remove the callback, and add AdaptiveGRPOCallback(trainer, "
                    "policy) for the new dataset; a policy that is passed again keeps its beliefs.",
                )
            self.prompts.follow(trainer.train_dataset)
        self.session.follow_scale(trainer.scale_rewards)
        self.options = self.session.options
        self._unobserved = self._check(self.policy, self.options, self.ledger_path)
        try:
            check_texts(self.policy.estimator.texts, self.prompts, "the policy")
        except InputError as error:
            if self.options.baseline is not None or self.ledger_path is not None:
                raise
            self._unobserved = f"TRL trains without {self.policy}, which decides nothing. {error}"
        return self._unobserved is None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raises `UnsupportedError` if TRL does not train on the policy's batch."""
        if self._unobserved is not None:
            return
        self._check_deciding()
        steps = state.global_step - self._begun
        every = args.steps_per_generation * self.trainer.num_iterations
        if not self._called and steps >= every:
            raise no_decision(steps)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Passes the main metrics and histograms to the trackers, and an evaluation to
        `held_out`."""
        logs = {} if logs is None else logs
        if self.trackers is not None and "loss" in logs:  # not an evaluation, nor the end
            self.trackers.log(state.global_step, logs)
        if logs.get("eval_reward") is not None:
            named = next((name for name in logs if name.endswith("_runtime")), "eval_runtime")
            which = named.removeprefix("eval_").removesuffix("runtime").removesuffix("_")
            self.held_out(logs["eval_reward"], logs.get(named, 0.0), which)

    def held_out(self, reward: float, seconds: float = 0.0, name: str = "") -> None:
        """Writes the mean reward and seconds of your own evaluation next to the ledger, for
        `budgetalloc report A B`. With several evaluation sets, give the name of this one.

        TRL's evaluations are written automatically.
        """
        for each in self.session.written if self._training else ():
            each.progress.held_out(
                self.trainer.state.global_step, self.policy.estimator.step, reward, seconds, name
            )
