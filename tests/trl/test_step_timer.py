"""The clock around the trainer's own steps, with events only. `test_costs.py` uses TRL's trainer."""

import pytest
import torch

from budgetalloc.training.clock import Clock
from budgetalloc.trl.patching import timed_steps


class Handler:
    """Callbacks that take 100 seconds in every event; one of them raises, evaluates or logs in some."""

    def __init__(self, now):
        self.now = now

    def call_event(self, event, args, state, control, **_):
        self.now[0] += 100.0
        if state == "raise":
            raise KeyError(event)
        if state == "evaluate":
            for nested in ("on_prediction_step", "on_log", "on_evaluate"):
                self.call_event(nested, args, None, control)
                self.now[0] += 100.0
        return control


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def handler(now):
    return Handler(now)


def step(handler, now, states=None):
    """One optimizer step of two micro-batches, of 1 + 2 + 4 + 8 + 16 seconds, with the time before and after it."""
    now[0] += 1000.0  # loads rows
    for event, seconds in (
        ("on_step_begin", 1.0),
        ("on_substep_end", 2.0),
        ("on_log", 4.0),  # a reward function that logs
        ("on_pre_optimizer_step", 8.0),
        ("on_optimizer_step", 16.0),
        ("on_step_end", 1000.0),  # logging, saving
        ("on_evaluate", 1000.0),
    ):
        assert handler.call_event(event, None, (states or {}).get(event), "control") == "control"
        now[0] += seconds


@pytest.mark.parametrize("evaluating", [None, "on_step_begin", "on_optimizer_step", "on_step_end"])
def test_only_the_time_between_the_events_of_a_step_is_counted(handler, now, evaluating):
    clock = Clock(lambda: now[0])
    with timed_steps(handler, clock):
        for _ in range(2):
            step(handler, now, {evaluating: "evaluate"})
            assert clock.lap() == 31.0
    step(handler, now)
    assert clock.lap() == 0.0
    assert "call_event" not in vars(handler)


def test_a_step_ends_when_the_device_has_ended(handler, now, monkeypatch):
    """Kernels that are still queued belong to the step."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: now.__setitem__(0, now[0] + 32.0))
    clock = Clock(lambda: now[0])
    with timed_steps(handler, clock):
        step(handler, now)
    assert clock.lap() == 63.0
