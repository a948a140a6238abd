"""Checks of the trainer, the dataset and the options, made before any GPU time is spent."""

import logging
import math
from typing import Any

import trl
from trl import GRPOTrainer

from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.policies import Policy
from budgetalloc.policies.paced import Paced
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer

logger = logging.getLogger(__name__)

# The attributes of TRL's trainer that the callback uses; read in 1.14.2, 1.15.0 and 1.16.0.
HELD = ("_generate_and_score_completions", "_calculate_rewards")
SEAM = (
    *HELD,
    "train",
    "_save_checkpoint",
    "_get_output_dir",
    "_load_optimizer_and_scheduler",
    "_get_per_token_logps_and_entropies",
    "_metrics",
    "_logs",
    "_tokenizer",
    "num_generations",
    "num_iterations",
    "reward_weights",
    "reward_func_names",
    "scale_rewards",
    "multi_objective_aggregation",
)


# Trainers of TRL 1.16 that generate and score, and the reason why they are not supported.
_REFUSED = {
    "RLOOTrainer": "RLOOTrainer adds a KL penalty to the rewards and returns it only as part of the advantages of "
    "equal groups, so the advantages of uneven groups would lack the penalty. Use GRPOTrainer with "
    "AdaptiveGRPOCallback(trainer, baseline='loo', scale='none'): the leave-one-out advantages are the same, and "
    "GRPOConfig(beta=) puts the KL into the loss.",
    "AsyncGRPOTrainer": "The rollout worker of AsyncGRPOTrainer generates num_generations rollouts of each row, "
    "outside the trainer and ahead of it. Use the worker of budgetalloc: worker = AdaptiveRolloutWorker(policy, "
    "reward_funcs=...), AsyncGRPOTrainer(..., rollout_worker=worker), worker.attach(trainer). Or use GRPOTrainer.",
    "SDPOTrainer": "SDPOTrainer finds the rollouts of a prompt by their position, num_generations in a row. Use "
    "GRPOTrainer.",
    "OnlineDPOTrainer": "OnlineDPOTrainer learns from pairs, always two rollouts a prompt. Use GRPOTrainer.",
    "A2POTrainer": "A2POTrainer learns from one completion a prompt. Use GRPOTrainer.",
}


def check_trainer(trainer: Any) -> None:
    """Raises `UnsupportedError` unless it is a `GRPOTrainer` that has every method and attribute needed."""
    if not isinstance(trainer, GRPOTrainer):
        known = [_REFUSED[cls.__name__] for cls in type(trainer).__mro__ if cls.__name__ in _REFUSED]
        advice = known[0] if known else "Pass the trainer itself, as in AdaptiveGRPOCallback(trainer, policy)."
        raise UnsupportedError(
            f"trainer is a {type(trainer).__name__}: AdaptiveGRPOCallback supports trl.GRPOTrainer and its subclasses. "
            + advice
        )
    missing = [name for name in SEAM if not hasattr(trainer, name)]
    if missing:
        raise UnsupportedError(
            f"TRL {trl.__version__} has no GRPOTrainer.{missing[0]}, which AdaptiveGRPOCallback needs (missing: "
            f"{missing}). Install trl 1.14 to 1.16, or a newer budgetalloc."
        )
    if _attached(trainer):
        raise InputError("trainer has an AdaptiveGRPOCallback already: call trainer.remove_callback(...) first.")


def check_only_one(trainer: Any, callback: Any) -> None:
    """Raises `InputError` unless the trainer holds this callback, once, and no other of its kind."""
    attached = _attached(trainer)
    if attached != [callback]:
        raise InputError(f"trainer has {len(attached)} AdaptiveGRPOCallbacks: add exactly one.")


def _attached(trainer: Any) -> list[Any]:
    callbacks = trainer.callback_handler.callbacks
    return [c for c in callbacks if "AdaptiveGRPOCallback" in (cls.__name__ for cls in type(c).__mro__)]


def check_served(trainer: Any, policy: Policy, options: Options, prompts: Prompts) -> None:
    """Raises if uneven groups, a choice among rows, or stored responses would give wrong results."""
    if isinstance(policy, Paced):
        raise UnsupportedError(
            f"{policy} is Paced: its budget varies over the run, and GRPOTrainer generates "
            f"{trainer.args.generation_batch_size} rows at every step (GRPOConfig.generation_batch_size). Attach the "
            "policy without a plan; or use AsyncGRPOTrainer with AdaptiveRolloutWorker(rollouts_per_step=), whose "
            "steps may have different sizes."
        )
    if options.generate > 1 and policy.keep is None:
        rows = trainer.args.generation_batch_size
        raise InputError(
            f"{policy} generates up to {options.generate} times as many rollouts as the trainer trains on, and has no "
            f"keep= that chooses among them: up to {options.generate * rows} rows would be in the loss, where "
            f"GRPOConfig asks for {rows}. Give the Policy a keep=, or needs with generate=1."
        )
    if options.buffer is not None:
        _check_buffer(trainer, options.buffer)
    if options.bounds.candidates != 1 and not prompts.indexable:
        raise UnsupportedError(
            f"candidates={options.bounds.candidates!r} chooses rows of the train dataset, which is not possible in a "
            f"{type(trainer.train_dataset).__name__}. Pass a datasets.Dataset, or candidates=1 to move rollouts inside "
            "each batch."
        )
    if options.baseline is not None and trainer.multi_objective_aggregation != "sum_then_normalize":
        raise UnsupportedError(
            f"GRPOConfig(multi_objective_aggregation={trainer.multi_objective_aggregation!r}) normalises each reward "
            "over equal groups. Use 'sum_then_normalize', or attach uniform()."
        )
    if getattr(trainer, "environment_factories", None) is not None and prompts.column is None:
        raise UnsupportedError(
            "With environment_factory the environment's reset() chooses the task, so the text of a row alone does not "
            f"identify a prompt. Add a column {prompts.name!r} of ints or strings that names the task. If the "
            "environment holds the data and there is no dataset, pass a placeholder: train_dataset="
            'Dataset.from_list([{"prompt": [{"role": "user", "content": ""}], '
            f'"{prompts.name}": n}} for n in range(1000)]), and let reset({prompts.name}, **_) choose the task by it.'
        )
    columns = set(getattr(trainer.train_dataset, "column_names", None) or [])
    if options.generate > 1 and {"image", "images"} & columns:
        raise UnsupportedError(
            f"The policy generates up to {options.generate} times as many rollouts as it trains on, and the train "
            "dataset has images, of which TRL does not keep one row of pixels a rollout. Use a policy that trains on "
            "all rollouts that it generates."
        )
    if prompts.column is not None and trainer.args.remove_unused_columns:
        raise InputError(
            f"GRPOConfig(remove_unused_columns=True) drops the column {prompts.column!r}. Set it to False."
        )
    prompts.check()


def _check_buffer(trainer: Any, buffer: object) -> None:
    """Raises `UnsupportedError` for settings with which `buffer=` cannot store or reuse responses correctly."""
    if not isinstance(buffer, SelectiveSampleBuffer | CorrectResponseBuffer):
        raise InputError(f"buffer={buffer!r}: pass a SelectiveSampleBuffer or a CorrectResponseBuffer.")
    args = trainer.args
    columns = set(getattr(trainer.train_dataset, "column_names", None) or [])
    refused = [
        (
            trainer.accelerator.num_processes > 1,
            f"{trainer.accelerator.num_processes} processes, of which one has the buffer. Train in one process",
        ),
        (
            bool(getattr(trainer, "tools", None) or getattr(trainer, "environment_factories", None)),
            "tools or environments, whose tokens are not the model's. Leave them out",
        ),
        (bool(columns & {"image", "images"}), "images, which are not stored. Use prompts of text"),
        (
            trainer.use_vllm and trainer.vllm_importance_sampling_correction,
            "GRPOConfig(vllm_importance_sampling_correction=True), whose ratio is not stored. Set it to False",
        ),
        (
            args.beta != 0 and args.sync_ref_model,
            "GRPOConfig(sync_ref_model=True), which replaces the reference model of stored responses. Set it to False",
        ),
        (
            trainer.multi_objective_aggregation != "sum_then_normalize",
            f"GRPOConfig(multi_objective_aggregation={trainer.multi_objective_aggregation!r}). "
            "Use 'sum_then_normalize'",
        ),
    ]
    for applies, what in refused:
        if applies:
            raise UnsupportedError(f"buffer= does not work with {what}, or attach the policy without a buffer.")


def warn_unaligned_saves(trainer: Any) -> None:
    """Warns if a checkpoint may fall between two generations: TRL then generates again on resume."""
    args = trainer.args
    every = args.steps_per_generation * trainer.num_iterations
    micro_steps = (args.save_steps if args.save_strategy == "steps" else 0) * args.gradient_accumulation_steps
    if micro_steps >= 1 and micro_steps % every:
        logger.warning(
            "save_steps=%s falls between two generations (one in %s micro-steps). TRL does not save generated batches, "
            "so a resumed run generates anew there and differs from an uninterrupted run. Use a multiple of %s.",
            args.save_steps,
            every,
            every // math.gcd(every, args.gradient_accumulation_steps),
        )
