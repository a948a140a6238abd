"""Temporary replacements of attributes of the trainer."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from budgetalloc.training.clock import Clock

_NOTHING = object()


@contextmanager
def patched_attribute(owner: Any, name: str, substitute: Any) -> Iterator[None]:
    """Replaces `owner.name` inside the block and restores it afterwards, unless other code has
    replaced it too.

    >>> class Trainer:
    ...     size = 8
    >>> trainer = Trainer()
    >>> with patched_attribute(trainer, "size", 1):
    ...     trainer.size
    1
    >>> trainer.size, vars(trainer)
    (8, {})
    """
    before = vars(owner).get(name, _NOTHING)
    setattr(owner, name, substitute)
    try:
        yield
    finally:
        if vars(owner).get(name, _NOTHING) is substitute:
            if before is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


@contextmanager
def timed_steps(handler: Any, clock: Clock) -> Iterator[None]:
    """Inside the block, runs the clock only while the trainer works on an optimizer step, for
    `cost="seconds"`.

    A step lasts from `on_step_begin` to `on_step_end`: generation, rewards, gradients and the
    optimizer. Logging, evaluations and checkpoints come after it. Callbacks within a step do not
    count: `handler`, the trainer's `callback_handler`, calls all of them by `call_event`. That is
    replaced, because a mixin of the trainer does not reach its handler.
    """
    call = handler.call_event

    @wraps(call)
    def call_untimed(event: str, *given: Any, **named: Any) -> Any:
        running = clock.running
        if running and event == "on_step_end" and torch.accelerator.is_available():
            torch.accelerator.synchronize()  # the last kernels may still be queued
        clock.stop()
        control = call(event, *given, **named)
        if event == "on_step_begin" or (running and event != "on_step_end"):
            clock.go()
        return control

    clock.stop()
    try:
        with patched_attribute(handler, "call_event", call_untimed):
            yield
    finally:
        clock.stop()
