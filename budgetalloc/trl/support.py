"""What the callback can serve, checked before any GPU time is spent."""

import logging
import math
from typing import Any

import trl
from trl import GRPOTrainer

from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.trl.generation import HELD
from budgetalloc.trl.options import Options
from budgetalloc.trl.prompts import Prompts

logger = logging.getLogger(__name__)

# The places of TRL that the callback holds on to; read in 1.16.0.
SEAM = (
    *HELD,
    "_load_optimizer_and_scheduler",
    "_metrics",
    "_logs",
    "_tokenizer",
    "num_generations",
    "num_iterations",
    "reward_weights",
    "scale_rewards",
    "multi_objective_aggregation",
)


def check_trainer(trainer: Any) -> None:
    """Raises `UnsupportedError` unless it is a `GRPOTrainer` that has every method and attribute needed."""
    if not isinstance(trainer, GRPOTrainer):
        raise UnsupportedError(
            f"trainer is a {type(trainer).__name__}: AdaptiveGRPOCallback serves trl.GRPOTrainer. Pass the trainer "
            "itself, as in AdaptiveGRPOCallback(trainer, policy)."
        )
    missing = [name for name in SEAM if not hasattr(trainer, name)]
    if missing:
        raise UnsupportedError(
            f"TRL {trl.__version__} has no GRPOTrainer.{missing[0]}, which AdaptiveGRPOCallback holds on to (missing: "
            f"{missing}). Install trl 1.16, or a newer budgetalloc."
        )
    if _attached(trainer):
        raise InputError("trainer has an AdaptiveGRPOCallback already: call trainer.remove_callback(...) first.")


def check_only_one(trainer: Any, callback: Any) -> None:
    """Raises `InputError` unless the trainer holds this callback, once, and no other of its kind."""
    found = _attached(trainer)
    if found != [callback]:
        raise InputError(f"trainer has {len(found)} AdaptiveGRPOCallbacks: add one, once.")


def _attached(trainer: Any) -> list[Any]:
    return [c for c in trainer.callback_handler.callbacks if type(c).__name__ == "AdaptiveGRPOCallback"]


def check_served(trainer: Any, options: Options, prompts: Prompts) -> None:
    """Raises for what uneven groups, or a choice among rows, would make wrong."""
    if options.candidates != 1 and not prompts.indexable:
        raise UnsupportedError(
            f"candidates={options.candidates!r} chooses rows of the train dataset, which a "
            f"{type(trainer.train_dataset).__name__} does not give. Pass a datasets.Dataset, or candidates=1 to move "
            "rollouts inside each batch."
        )
    if options.baseline is not None and trainer.multi_objective_aggregation != "sum_then_normalize":
        raise UnsupportedError(
            f"GRPOConfig(multi_objective_aggregation={trainer.multi_objective_aggregation!r}) normalises each reward "
            "over equal groups. Use 'sum_then_normalize', or attach uniform()."
        )
    if prompts.column is not None and trainer.args.remove_unused_columns:
        raise InputError(
            f"GRPOConfig(remove_unused_columns=True) drops the column {prompts.column!r}. Set it to False."
        )


def warn_unaligned_saves(trainer: Any) -> None:
    """Warns where a checkpoint may fall between two generations: TRL then generates anew on resume."""
    args = trainer.args
    every = args.steps_per_generation * trainer.num_iterations
    micro_steps = (args.save_steps if args.save_strategy == "steps" else 0) * args.gradient_accumulation_steps
    if micro_steps >= 1 and micro_steps % every:
        logger.warning(
            "save_steps=%s falls between two generations (one in %s micro-steps). TRL does not save generated batches, "
            "so a resumed run generates anew there and differs from one that never stopped. Use a multiple of %s.",
            args.save_steps,
            every,
            every // math.gcd(every, args.gradient_accumulation_steps),
        )
