"""What `trl.GRPOConfig` makes of its arguments, as far as it concerns budgetalloc: importing TRL takes many seconds."""

from collections.abc import Mapping
from typing import Any

from budgetalloc.cli.doctor.literals import UNKNOWN
from budgetalloc.errors import InputError

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
"""Those of TRL 1.16; a test compares them with the installed TRL."""


def resolved(given: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """The settings that are known, with the sizes of the batches that `GRPOConfig` computes.

    Args:
        given: The arguments of `GRPOConfig`, `UNKNOWN` for those that cannot be read.
        processes: Processes of the training.

    Raises:
        InputError: `GRPOConfig` would refuse these sizes.

    >>> sizes = resolved({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}, processes=2)
    >>> sizes["generation_batch_size"], sizes["steps_per_generation"]
    (32, 4)
    """
    known = {name: value for name, value in (DEFAULTS | dict(given)).items() if value is not UNKNOWN}
    if isinstance(known.get("scale_rewards"), bool):
        known["scale_rewards"] = "group" if known["scale_rewards"] else "none"
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    sizes_and_batch = (*sizes, "generation_batch_size")
    for name in (*sizes_and_batch, "num_generations"):
        if known.get(name) is not None and not (isinstance(known[name], int) and known[name] > 0):
            raise InputError(f"GRPOConfig({name}={known[name]!r}): use a positive integer.")
    if any(name not in known for name in sizes_and_batch):  # one of them is unknown, so the batch is
        known.pop("steps_per_generation", None)
        known = {name: value for name, value in known.items() if name != "generation_batch_size" or value}
    else:
        device, accumulated, steps, batch = (known[name] for name in sizes_and_batch)
        if steps and batch:
            raise InputError(
                f"GRPOConfig(steps_per_generation={steps}, generation_batch_size={batch}): it takes one of them."
            )
        if batch and batch % (device * processes):
            raise InputError(
                f"GRPOConfig(generation_batch_size={batch}): not a multiple of per_device_train_batch_size={device} "
                f"times {processes} processes."
            )
        known["steps_per_generation"] = steps or (batch // (device * processes) if batch else accumulated)
        known["generation_batch_size"] = batch or device * processes * known["steps_per_generation"]
    batch, group = known.get("generation_batch_size"), known.get("num_generations")
    if group == 1:
        raise InputError("GRPOConfig(num_generations=1): GRPO needs at least 2.")
    if batch and group and batch % group:
        raise InputError(
            f"GRPOConfig: a generation batch of {batch} rollouts is not a multiple of num_generations={group}. Change "
            "num_generations, or the sizes of the batch."
        )
    return known
