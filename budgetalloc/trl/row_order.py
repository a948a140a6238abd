"""The order in which TRL's loader returns the train dataset, also after a resume."""

import logging
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["restore_order", "steps_per_epoch"]

logger = logging.getLogger(__name__)


def restore_order(trainer: Any, loader: Any) -> None:
    """Gives the loader of a resumed run the order of the epoch in which the checkpoint was saved.

    transformers skips the batches of that epoch that were trained on. But TRL's `RepeatSampler`
    draws one order per epoch from its generator, and a resumed run starts with a new generator, so
    plain TRL repeats the first epoch's order.
    """
    state = trainer.state
    if state.global_step == 0:
        return
    steps = steps_per_epoch(trainer.args, loader)
    if steps is None:
        if (state.epoch or 0) >= 1:
            logger.warning(
                "The train dataset is iterable and the checkpoint of step %s lies in its second "
                "pass or later: "
                "transformers continues at the start of the next pass instead of the checkpoint's "
                "position, so "
                "this run trains on other rows than an uninterrupted run.",
                state.global_step,
            )
        return
    epoch = state.global_step // steps
    if state.global_step >= state.max_steps and epoch < state.num_train_epochs:
        logger.warning(
            "The checkpoint of step %s is that of a finished run (max_steps=%s): transformers "
            "trains one more step "
            "when it is resumed. Raise max_steps or num_train_epochs to continue, or load the "
            "model from the "
            "checkpoint.",
            state.global_step,
            state.max_steps,
        )
    if epoch == 0 or not getattr(trainer, "shuffle_dataset", True):
        return
    for sampler in _samplers(loader):
        generator = getattr(sampler, "generator", None)
        if type(sampler).__name__ == "RepeatSampler" and isinstance(generator, torch.Generator):
            for _ in range(epoch):
                torch.randperm(sampler.num_samples, generator=generator)
            return
    logger.warning(
        "The checkpoint of step %s lies in epoch %s (counted from 0), whose order of rows cannot "
        "be restored, because "
        "the trainer's sampler is not TRL's RepeatSampler: this run may train on other rows than "
        "an uninterrupted run.",
        state.global_step,
        epoch,
    )


def steps_per_epoch(args: Any, loader: Any) -> int | None:
    """Optimizer steps of an epoch, as transformers counts them; None if the loader has no
    length."""
    try:
        batches: int = len(loader)
    except TypeError:
        return None
    return max(1, -(-batches // int(args.gradient_accumulation_steps)))


def _samplers(loader: Any) -> Iterator[Any]:
    """The samplers inside a loader, from the outside in; accelerate may wrap batch samplers."""
    part = loader
    while part is not None:
        yield part
        inside = getattr(part, "batch_sampler", None)
        part = getattr(part, "sampler", None) if inside is None else inside
