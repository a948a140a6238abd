"""The clock around the trainer's own steps. Which events count: test_costs.py, with TRL's trainer."""

from types import SimpleNamespace

import torch

from budgetalloc.training.clock import Clock
from budgetalloc.trl.patching import timed_steps


def test_a_step_ends_when_the_device_has_ended(monkeypatch):
    """Kernels that are still queued belong to the step."""
    now = [0.0]
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: now.__setitem__(0, now[0] + 32.0))
    clock, handler = Clock(lambda: now[0]), SimpleNamespace(call_event=lambda event, *_: None)
    with timed_steps(handler, clock):
        for event in ("on_step_begin", "on_optimizer_step", "on_step_end"):
            handler.call_event(event, None, None, None)
            now[0] += 1.0
    assert clock.lap() == 34.0
