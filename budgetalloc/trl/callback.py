"""The callback that lets a policy decide the rollout counts of TRL's `GRPOTrainer`, step by
step."""

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, Literal

from transformers import TrainerCallback

from budgetalloc.contrib.mixture import Mixture, Rule
from budgetalloc.contrib.prices import Seconds
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.policies.advantages import Baseline, Scale, Weight
from budgetalloc.policies.quotas import Shares
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.costs import Cost
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.options import Options, other_scale
from budgetalloc.training.policy_like import PolicyLike, policy_of
from budgetalloc.training.prompt_features import FeatureNames, policy_with_features
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session
from budgetalloc.training.success import Success
from budgetalloc.training.unseen_prompts import UnseenPromptsWarning
from budgetalloc.trl.checkpoints import newest_complete_or_error, with_load, with_save
from budgetalloc.trl.checks import (
    check_budget,
    check_compatible,
    check_only_one,
    check_trainer,
    no_decision,
)
from budgetalloc.trl.compatibility import Facts, unaligned_saves
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer
from budgetalloc.trl.experimental.response_reuse import Reuse
from budgetalloc.trl.hidden_states import hidden_states
from budgetalloc.trl.patching import patched_attribute
from budgetalloc.trl.policy_state import PolicyState
from budgetalloc.trl.processes import check_same_arguments, same_everywhere
from budgetalloc.trl.row_order import restore_order
from budgetalloc.trl.shadow import shadow_of
from budgetalloc.trl.step import run_step
from budgetalloc.trl.step_timer import timed_steps
from budgetalloc.trl.trackers import Trackers
from budgetalloc.trl.training import Rows, Training

__all__ = ["AdaptiveGRPOCallback"]

logger = logging.getLogger(__name__)


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
        candidates: Prompts to choose among. 1: those of the batch. k: k times as many, the others
            drawn from the train dataset. "all": the whole train dataset. Default: the policy's
            needs.
        baseline, scale, weight: As in `budgetalloc.group_advantages`. Default: the policy's needs,
            but `scale` is `GRPOConfig.scale_rewards` if that is not TRL's default, "group": with
            `scale_rewards="none"`, as in Dr. GRPO (arXiv 2503.20783), differences are not divided
            by a deviation under any policy. A batch whose rows are unchanged keeps TRL's
            advantages, unless one of the three is given and differs from the trainer's.
        floor: Fewest rollouts of a prompt; by default, 2 with `candidates=1` and 0 otherwise.
        cap: Most rollouts of a prompt; by default, 8 times `num_generations` (more if there are too
            few prompts).
        min_group: Smallest group that is not empty. Default: the policy's needs.
        quantum: Counts are multiples of it.
        prompt_id: The dataset column with the ids of prompts. Default: "prompt_id" if there is one,
            else a hash of the prompt. Rows with the same id are one prompt and must have the same
            prompt text; its rollouts use them in turn.
        success: The success of a rollout, from which the beliefs learn. A str or an int: the name
            of a reward function, or its index in `reward_funcs`. A float: a threshold on the total
            reward. Or a function of the rewards by function name, shape (R,) each, that returns
            success in [0, 1], shape (R,). Default: the reward itself if there is one function. Of
            several, those of the largest weight among the functions with values 0 and 1 only, all
            of which must be 1; the choice is logged once. If they return None, success is the total
            reward, mapped to [0, 1]. Advantages always use the total reward.
        reward_range: Lowest and highest total reward, mapped to [0, 1] for the beliefs if success
            is the total. Rewards outside are clipped for the beliefs and counted. By default the
            range is learned. Policies that decide nothing, such as `uniform()`, ignore it.
        fallback: Whether groups become uniform while the beliefs or the advantages of a posterior
            baseline stay out of bounds (`training.rails`). The policy continues to learn, and
            decides again afterwards. False only warns.
        hint: For `methods.on_all_fail`: a function from a dataset row to the row with a hint in
            its prompt. Rollouts with a hint belong to their prompt's group, are trained on with the
            hint, and are logged as "ID (hinted)".
        buffer: A `SelectiveSampleBuffer` or a `CorrectResponseBuffer` of
            `budgetalloc.trl.experimental.buffers`, whose responses of earlier optimizer steps
            replace rows without signal, with the log-probabilities of the model that generated
            them. Beliefs, metrics and ledger use fresh rollouts only. Checkpoints hold its state.
        domain: The dataset column that names the domain of a prompt, for `quotas` and `mixture`.
        quotas: Lowest and highest share of the generated rollouts of each domain, such as {"math":
            (0.3, 0.5)}, kept at every step and logged as `budgetalloc/share/DOMAIN`; prompts of
            other domains, or of none, are not limited.
        mixture: Divides each step's rollouts between the domains, within `quotas`, by what a
            rollout there is expected to teach: "learn", "adept", or a `contrib.mixture.Mixture`.
            The policy chooses within each.
        cost: "tokens", "seconds", prices of what rollouts report, such as {"tokens": 1, "turns":
            50, "tool_seconds": 200} (docs/agents.md), or a function of the tokens of prompts and of
            their expected answers (`training.costs.Price`). Expected lengths are learned per
            prompt, and rollouts go where a token buys most. A prompt's text is paid for once per
            group, so long prompts get groups. The prices of "seconds" are fitted to the time of the
            trainer's steps, without callbacks, evaluations and checkpoints; such a run cannot be
            repeated to the bit. Supported by `adaptive`, `sampled`, `knapsack` and `thompson`.
            Default: all rollouts cost the same.
        cost_per_step: What a step may cost on average, in the unit of `cost`, which must not be
            "seconds". The number of rollouts stays; a price moves them to cheaper prompts while
            steps cost more (`training.cost_budget`).
        features: By which prompts share beliefs: "text", "model", columns, `Path`s of earlier runs,
            or `Features`.
        shadow: Another policy that watches the run and changes nothing of it. It learns from the
            same rollouts, and metrics under `budgetalloc/shadow/` say what it would have drawn and
            compare the advantages that it would have given. All other arguments apply to it, except
            `hint`, `buffer` and `cost="seconds"`.
        ledger: A file to which every rollout is appended; see `budgetalloc.logs.ledger`. The
            beginning of each prompt's text is written once, to a file next to it that ends in
            .prompts, for `budgetalloc report`.
        allow_dataset_change: Resume with another train dataset than the checkpoint's; known prompts
            keep their beliefs.

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
        candidates: int | Literal["all"] | None = None,
        baseline: Baseline | None = None,
        scale: Scale | None = None,
        weight: Weight | None = None,
        floor: int | None = None,
        cap: int | None = None,
        min_group: int | None = None,
        quantum: int = 1,
        prompt_id: str | None = None,
        success: Success = None,
        reward_range: tuple[float, float] | None = None,
        fallback: bool = True,
        hint: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        buffer: SelectiveSampleBuffer | CorrectResponseBuffer | None = None,
        domain: str | None = None,
        quotas: Shares | None = None,
        mixture: Rule | Mixture | None = None,
        cost: Cost = None,
        cost_per_step: float | None = None,
        features: FeatureNames = None,
        shadow: PolicyLike | None = None,
        ledger: str | os.PathLike[str] | None = None,
        allow_dataset_change: bool = False,
    ) -> None:
        check_trainer(trainer)
        self.trainer = trainer
        self.policy = policy_of("adaptive" if policy is None else policy)
        given: dict[str, Any] = {
            "fallback": fallback,
            "mixture": mixture,
            "cost_per_step": cost_per_step,
        }
        given |= {
            "candidates": candidates,
            "floor": floor,
            "cap": cap,
            "min_group": min_group,
            "quantum": quantum,
        }
        given |= {
            "baseline": baseline,
            "scale": scale,
            "weight": weight,
            "hint": hint,
            "buffer": buffer,
            "cost": cost,
        }
        given |= {
            "success": success,
            "reward_range": reward_range,
            "domain": domain,
            "quotas": quotas,
        }
        self.options = Options.resolve(self.policy.needs, trainer.scale_rewards, given)
        main = trainer.accelerator.is_main_process
        check_ledger(ledger, writes=main)
        if main and (other := other_scale(self.policy, self.options)):
            logger.warning("%s", other)
        named = self.options.baseline is not None or shadow is not None
        self.prompts = Prompts(trainer.train_dataset, prompt_id, required=named)
        states = partial(hidden_states, trainer)
        self.policy = policy_with_features(
            self.policy, self.prompts, features, ledger, not main, states
        )
        names, weights = trainer.reward_func_names, trainer.reward_weights.tolist()
        self.session = Session(self.policy, names, weights, resolved=self.options, quiet=not main)
        self.session.shadow = shadow_of(shadow, trainer, self.session, self.prompts, given)
        self.scoring, self.costs = self.session.scoring, self.session.costs
        self._unobserved = check_compatible(
            trainer, self.policy, self.options, self.prompts, ledger
        )
        rollouts, group = trainer.args.generation_batch_size, trainer.num_generations
        if self._unobserved is None:
            check_budget(self.options, self.prompts, rollouts, group)
        self.session.quotas = self.options.quotas_of(self.prompts, self.policy, rollouts, group)
        self.reuse = None if self.options.buffer is None else Reuse(trainer, self.options.buffer)
        self.trackers = (
            None if self._unobserved else Trackers.of(trainer, self.policy, self.prompts.texts)
        )
        self.ledger_path = ledger
        self._learned = PolicyState(
            trainer, self.session, self.prompts, self.reuse, self.trackers, allow_dataset_change
        )
        self.batch: Rollouts | None = None
        """The record of the last step, for other callbacks."""
        self._training: Training | None = None
        self._held = ExitStack()  # replacements of the trainer's methods during training
        self._wrap_train(trainer)

    def _wrap_train(self, trainer: Any) -> None:
        """Wraps `train`, saving and loading, because TRL has no callback event for a run that
        raises."""
        train = trainer.train

        @wraps(train)
        def train_and_release(
            resume_from_checkpoint: str | bool | None = None, *more: Any, **named: Any
        ) -> Any:
            if not self._attached():
                return train(resume_from_checkpoint, *more, **named)
            if resume_from_checkpoint is True:
                resume_from_checkpoint = newest_complete_or_error(trainer.args.output_dir)
            with self._held:
                self._held.callback(setattr, self, "_training", None)
                saves = with_save(
                    trainer,
                    self._learned.save,
                    lambda: trainer.args.should_save and self._attached(),
                )
                self._held.enter_context(patched_attribute(trainer, "_save_checkpoint", saves))
                restores = with_load(trainer, self._learned.load, self._attached)
                self._held.enter_context(
                    patched_attribute(trainer, "_load_optimizer_and_scheduler", restores)
                )
                return train(resume_from_checkpoint, *more, **named)

        trainer.train = train_and_release

    def _attached(self) -> bool:
        return self._unobserved is None and self in self.trainer.callback_handler.callbacks

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        """Replaces TRL's generation and scoring for the duration of the training."""
        trainer = self.trainer
        check_only_one(trainer, self)
        if self._unobserved is not None:
            logger.warning("%s", self._unobserved)
            return
        if unaligned := unaligned_saves(Facts.of(trainer, self.prompts)):
            logger.warning("%s", unaligned)
        restore_order(trainer, train_dataloader)
        if self.reuse is not None:
            self.reuse.check_clock(state.global_step)
        self._begun = state.global_step, self.policy.estimator.step
        self.costs.restart()
        if isinstance(self.costs.price, Seconds):
            self._held.enter_context(timed_steps(trainer.callback_handler, self.costs.clock))
        if trainer.accelerator.num_processes > 1:
            check_same_arguments(trainer.accelerator, same_everywhere(self.session, self.prompts))
        path = self.ledger_path if trainer.accelerator.is_main_process else None
        session = self.session
        session.written = (
            [] if path is None else [LogWriter(path, state.global_step, self.prompts.texts)]
        )
        generate: Callable[[Rows], dict[str, Any]] = trainer._generate_and_score_completions
        if session.shadow is not None:
            session.shadow.choose_from(self.prompts)
        session.pool = () if self.options.bounds.candidates == 1 else self.prompts.pool
        listed = self.prompts.indexable and getattr(trainer.train_dataset, "column_names", None)
        merges = listed and not self.options.keep_batch and trainer.accelerator.is_main_process
        if merges and (shared := self.prompts.shared_ids_warning()):
            logger.warning(shared)
        session.pool_size = len(session.pool) or (len(self.prompts.pool) if listed else 0)
        training = self._training = Training(
            trainer=trainer,
            session=session,
            prompts=self.prompts,
            generate=generate,
            reuse=self.reuse,
            trackers=self.trackers,
            watch=UnseenPromptsWarning(),
        )

        @wraps(generate)
        def generate_and_score(inputs: list[dict[str, Any]]) -> dict[str, Any]:
            # A wrapper that other code puts around this function during training may outlive the
            # training.
            if not trainer.model.training or self._training is not training:
                return generate(inputs)
            if not self._attached():
                self._let_go(training)
                return generate(inputs)
            output, self.batch = run_step(training, inputs)
            return output

        self._held.enter_context(
            patched_attribute(trainer, "_generate_and_score_completions", generate_and_score)
        )

    def _let_go(self, training: Training) -> None:
        """Detaches this callback from a training that continues without it."""
        self._training = None
        logger.warning(
            "The AdaptiveGRPOCallback was removed before step %s: from now on TRL generates %s "
            "rollouts of each "
            "prompt, and checkpoints hold no beliefs.",
            training.trainer.state.global_step,
            training.trainer.num_generations,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raises `UnsupportedError` if TRL does not train on the policy's batch."""
        if self._unobserved is not None:
            return
        begun, known = self._begun
        steps = state.global_step - begun
        if (
            self.policy.estimator.step == known
            and steps >= args.steps_per_generation * self.trainer.num_iterations
        ):
            raise no_decision(steps)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Passes histograms and the table of prompts to the trackers, and an evaluation to
        `held_out`."""
        logs = logs or {}
        if self.trackers is not None and "loss" in logs:  # not an evaluation, nor the end
            self.trackers.log(state.global_step)
        if logs.get("eval_reward") is not None:
            self.held_out(logs["eval_reward"], logs.get("eval_runtime", 0.0))

    def held_out(self, reward: float, seconds: float = 0.0) -> None:
        """Writes the mean reward and seconds of your own evaluation next to the ledger, for
        `budgetalloc report A B`.

        TRL's evaluations are written automatically.
        """
        for each in self.session.written if self._training else ():
            each.progress.held_out(
                self.trainer.state.global_step, self.policy.estimator.step, reward, seconds
            )
