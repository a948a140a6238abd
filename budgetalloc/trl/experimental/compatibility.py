"""Checks of what `AdaptiveRolloutWorker` supports, before anything is generated."""

from collections.abc import Mapping
from typing import Any

import trl
from packaging.version import Version

from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.policies import Policy
from budgetalloc.policies.pacing_policy import Paced
from budgetalloc.training.options import Options
from budgetalloc.training.prompts import Prompts

__all__ = ["check_compatible", "check_no_tools", "check_policy", "check_version"]


def check_version() -> None:
    """Raises `UnsupportedError` for a TRL before 1.16."""
    if Version(trl.__version__).release < (1, 16):
        raise UnsupportedError(
            f"TRL {trl.__version__}: AdaptiveRolloutWorker is tested with the AsyncGRPOTrainer of "
            "TRL 1.16, an "
            "experiment that changes from version to version. Install trl 1.16, or train with "
            "GRPOTrainer."
        )


def check_no_tools(tools: Any, environment_factory: Any) -> None:
    """Raises `UnsupportedError` for tools and environments, with which rollouts have several
    turns."""
    if tools or environment_factory:
        raise UnsupportedError(
            "tools and environment_factory: TRL may split a rollout of several turns into several "
            "rows, inside its own "
            "worker's process. Train with GRPOTrainer and AdaptiveGRPOCallback instead."
        )


def check_policy(policy: Policy, options: Options) -> None:
    """Raises `UnsupportedError` for a `Paced` policy, for costs that rollouts report, and for
    shares of domains with `candidates` other than "all"."""
    if isinstance(policy, Paced):
        raise UnsupportedError(
            f"{policy} is Paced: give the worker the rollouts of each step, rollouts_per_step=, "
            "and a policy without a "
            "plan."
        )
    if isinstance(options.cost, Mapping):
        raise UnsupportedError(
            f"cost={dict(options.cost)}: the worker's rollouts report no costs. Use cost='tokens', "
            "or GRPOTrainer with "
            "AdaptiveGRPOCallback."
        )
    if options.domain is not None and options.bounds.candidates != "all":
        what = "quotas" if options.mixture is None else "mixture"
        raise UnsupportedError(
            f"{what} with candidates={options.bounds.candidates}: the worker's candidates cycle "
            "through the dataset "
            "without regard to domains. Use candidates='all'."
        )


def check_compatible(trainer: Any, prompts: Prompts) -> None:
    """Raises for a dataset or a setting of the trainer that the worker does not support."""
    dataset = trainer.train_dataset
    if not prompts.indexable:
        raise UnsupportedError(
            f"The train dataset is a {type(dataset).__name__}, from which the policy cannot choose "
            "rows. Pass a "
            "datasets.Dataset."
        )
    if {"image", "images", "environment"} & set(dataset.column_names):
        raise UnsupportedError(
            f"The train dataset has the columns {dataset.column_names}: AdaptiveRolloutWorker "
            "supports neither images "
            "nor environments. Train with GRPOTrainer and AdaptiveGRPOCallback instead."
        )
    if getattr(trainer, "_lora_sync", False):
        raise UnsupportedError(
            "TRL loads each version of the LoRA adapter into the vLLM server under a new name, "
            "which this worker does "
            "not use. Start the server without --enable-lora: TRL then sends the merged weights."
        )
    if trainer._epoch_stop_groups is not None:
        raise InputError(
            "AsyncGRPOConfig has no max_steps: TRL would count groups of any size as an epoch's "
            "prompts. Set max_steps."
        )
    prompts.check()
