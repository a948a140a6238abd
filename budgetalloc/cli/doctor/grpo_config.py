"""Resolves the arguments of `trl.GRPOConfig` without TRL, whose import takes many seconds."""

from collections.abc import Mapping
from typing import Any

from budgetalloc.cli.doctor.literals import UNKNOWN
from budgetalloc.errors import MOST, shown

__all__ = ["DEFAULTS", "resolved"]

DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": None,
    "generation_batch_size": None,
    "num_generations": 8,
    "num_iterations": 1,
    "max_completion_length": 512,
    "max_steps": -1,
    "num_train_epochs": 3.0,
    "save_strategy": "steps",
    "save_steps": 500,
    "multi_objective_aggregation": "sum_then_normalize",
    "scale_rewards": "group",
    "reward_weights": None,
    "remove_unused_columns": False,
    "beta": 0.0,
    "sync_ref_model": False,
    "use_vllm": False,
    "vllm_importance_sampling_correction": True,
}
"""The defaults of TRL 1.16; a test compares them with the installed TRL."""
_BATCHES = ("steps_per_generation", "generation_batch_size")
_SIZES = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations", "num_iterations")
_SCALES = ("group", "batch", "none")


def _instead(name: str, value: Any) -> str | None:
    """What to write instead of a value with which nothing can be computed; None if it is fine."""
    if value is None and name in (*_BATCHES, "max_completion_length", "reward_weights"):
        return None
    if name in (*_SIZES, *_BATCHES, "max_completion_length"):
        return None if isinstance(value, int) and 0 < value <= MOST else "a positive integer"
    if name in ("max_steps", "num_train_epochs", "save_steps"):
        return None if _is_number(value) else "a number"
    if name == "scale_rewards":
        return None if value in _SCALES else f"one of {_SCALES}"
    numbers = name != "reward_weights" or (isinstance(value, list | tuple) and all(map(_is_number, value)))
    return None if numbers else "a list of numbers, one for each reward function"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= 1e30  # not NaN either


def resolved(given: Mapping[str, Any], processes: int) -> tuple[dict[str, Any], list[str]]:
    """The known settings, with the batch sizes that `GRPOConfig` computes, and all mistakes in them.

    Args:
        given: The arguments of `GRPOConfig`, `UNKNOWN` for those that cannot be read.
        processes: Processes of the training.

    >>> sizes, mistakes = resolved({"per_device_train_batch_size": 4, "num_generations": 0}, processes=2)
    >>> sizes["generation_batch_size"], mistakes
    (8, ['GRPOConfig(num_generations=0): use a positive integer.'])
    """
    known = {name: value for name, value in (DEFAULTS | dict(given)).items() if value is not UNKNOWN}
    if known.get("scale_rewards") in (True, False):
        known["scale_rewards"] = "group" if known["scale_rewards"] else "none"
    instead = {name: words for name, value in known.items() if (words := _instead(name, value))}
    mistakes = [f"GRPOConfig({name}={shown(known.pop(name))}): use {words}." for name, words in instead.items()]
    wrong = []
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps", *_BATCHES)
    if all(name in known for name in sizes):
        device, accumulated, steps, batch = (known[name] for name in sizes)
        if steps and batch:
            wrong.append(f"(steps_per_generation={steps}, generation_batch_size={batch}): it takes one of them.")
        elif batch and batch % (device * processes):
            wrong.append(
                f"(generation_batch_size={batch}): not a multiple of per_device_train_batch_size={device} times "
                f"{processes} processes."
            )
        known["steps_per_generation"] = steps or (batch // (device * processes) if batch else accumulated)
        known["generation_batch_size"] = batch or device * processes * known["steps_per_generation"]
    batch, group = known.get("generation_batch_size"), known.get("num_generations")
    if group == 1:
        wrong.append("(num_generations=1): GRPO needs at least 2.")
    if batch and group and batch % group and not wrong:
        wrong.append(
            f": a generation batch of {batch} rollouts is not a multiple of num_generations={group}. Change "
            "num_generations, or the sizes of the batch."
        )
    for name in _BATCHES:
        if wrong or known.get(name) is None:
            known.pop(name, None)
    return known, mistakes + [f"GRPOConfig{text}" for text in wrong]
