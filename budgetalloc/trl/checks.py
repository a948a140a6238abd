"""Checks of the trainer, the dataset and the options, made before any GPU time is spent."""

import logging
from typing import Any

import trl
from packaging.version import Version
from trl import GRPOTrainer

from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.policies import Policy
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts
from budgetalloc.trl.compatibility import Facts, not_a_grpo_trainer, refusals, unnamed_tasks
from budgetalloc.trl.experimental.buffers import CorrectResponseBuffer, SelectiveSampleBuffer
from budgetalloc.trl.experimental.trees.rollouts import Trees
from budgetalloc.trl.experimental.trees.rollouts import refusals as tree_refusals

__all__ = [
    "HELD",
    "SEAM",
    "check_budget",
    "check_compatible",
    "check_only_one",
    "check_trainer",
    "no_decision",
]

logger = logging.getLogger(__name__)

_TESTED = Version("1.14"), Version("1.17.dev0")  # from, and below

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


def check_trainer(trainer: Any) -> None:
    """Raises `UnsupportedError` unless this is a `GRPOTrainer` with every method and attribute of
    `SEAM`."""
    if not isinstance(trainer, GRPOTrainer):
        raise not_a_grpo_trainer(cls.__name__ for cls in type(trainer).__mro__)
    missing = [name for name in SEAM if not hasattr(trainer, name)]
    if missing:
        raise UnsupportedError(
            f"TRL {trl.__version__} has no GRPOTrainer.{missing[0]}, which AdaptiveGRPOCallback "
            "needs (missing: "
            f"{missing}). Install trl 1.14 to 1.16, or a newer budgetalloc."
        )
    if not _TESTED[0] <= Version(trl.__version__) < _TESTED[1]:
        logger.warning(
            "TRL %s is not tested with this budgetalloc. Install trl 1.14 to 1.16.", trl.__version__
        )
    if _attached(trainer):
        raise InputError(
            "trainer has an AdaptiveGRPOCallback already: call trainer.remove_callback(...) first."
        )


def check_only_one(trainer: Any, callback: Any) -> None:
    """Raises `InputError` unless the trainer has this callback once, and no other of its kind."""
    attached = _attached(trainer)
    if attached != [callback]:
        raise InputError(f"trainer has {len(attached)} AdaptiveGRPOCallbacks: add exactly one.")


def _attached(trainer: Any) -> list[Any]:
    callbacks = trainer.callback_handler.callbacks
    return [
        c for c in callbacks if "AdaptiveGRPOCallback" in (cls.__name__ for cls in type(c).__mro__)
    ]


def check_compatible(
    trainer: Any, policy: Policy, options: Options, prompts: Prompts, ledger: Any = None
) -> str | None:
    """Raises if uneven groups, chosen rows or stored responses would give wrong results.

    Returns:
        None, or the reason why a policy that decides nothing cannot observe this training: nothing
            identifies its
        prompts. TRL then trains as without the policy. With a ledger the reason is raised.
    """
    if not isinstance(options.buffer, SelectiveSampleBuffer | CorrectResponseBuffer | None):
        raise InputError(
            f"buffer={options.buffer!r}: pass a SelectiveSampleBuffer or a CorrectResponseBuffer."
        )
    for error in refusals(Facts.of(trainer, prompts), policy, options):
        raise error
    if isinstance(trainer.rollout_func, Trees):
        for refusal in tree_refusals(trainer, policy, options):
            raise refusal
    prompts.check()
    if options.baseline is not None:
        return None
    reason = prompts.unnamed or unnamed_tasks(Facts.of(trainer, prompts)) or prompts.unnamed_row()
    if reason is None:
        return None
    if ledger is not None:
        raise UnsupportedError(f"ledger={str(ledger)!r} needs names of prompts. {reason}")
    return (
        f"{policy} decides nothing, and nothing tells the prompts apart: TRL trains as without it, "
        "the log has no "
        f"budgetalloc/ metrics, and checkpoints hold no beliefs. {reason}"
    )


def check_budget(options: Options, prompts: Prompts, rollouts: int, group: int) -> None:
    """Raises `BudgetError` unless a step's candidate prompts can spend its rollouts within the
    bounds.

    Args:
        options: The options.
        prompts: The prompts of the train dataset.
        rollouts: Rollouts that a step trains on.
        group: The trainer's group size.
    """
    candidates = batch = rollouts // group
    if prompts.indexable and getattr(prompts.dataset, "column_names", None):
        candidates = options.bounds.on_offer(batch, len(prompts.pool))
    budget = options.bounds.budget(rollouts * options.generate, candidates, group)
    if options.domain is None:  # else the part, which knows the candidates of each domain
        budget.check(candidates)


def no_decision(steps: int) -> UnsupportedError:
    """The error about a TRL that trained without the policy."""
    return UnsupportedError(
        f"TRL {trl.__version__} trained {steps} steps without calling "
        "GRPOTrainer._generate_and_score_completions on "
        "the trainer, so the policy made no decision. Install trl 1.14 to 1.16, or a newer "
        "budgetalloc."
    )
