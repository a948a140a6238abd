"""Times the trainer's own work, for `cost="seconds"`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from budgetalloc.training.clock import Clock
from budgetalloc.trl.patching import patched_attribute

__all__ = ["timed_steps"]


@contextmanager
def timed_steps(handler: Any, clock: Clock) -> Iterator[None]:
    """Inside the block, runs the clock only while the trainer works on an optimizer step.

    A step lasts from `on_step_begin` to `on_step_end`: generation, rewards, gradients and the
    optimizer. Logging, evaluations and checkpoints come after it. Callbacks within a step do not
    count: `handler`, the trainer's `callback_handler`, calls all of them by `call_event`, which is
    replaced.
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
