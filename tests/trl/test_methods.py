"""Every method of the table trains in TRL's real trainer."""

import numpy as np
import pytest
from conftest import logged, same_weights, trained, weights

import budgetalloc as ba
from budgetalloc.methods.table import METHODS

STEPS = 2
MEASURING = {name: {"offline": dict.fromkeys(range(100), (4, 8))} for name in ("adarft", "sgpo", "a_star_po")}
MEASURING["cures"] = {"first": 0}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_trains(build, ledger, method):
    trainer = build(max_steps=STEPS)
    # A policy that measures every prompt first would train on nothing in so few steps.
    policy, before = method.build(seed=1, **MEASURING.get(method.name, {})), weights(trainer)
    trained(trainer, policy, ledger=ledger)
    assert np.isfinite(logged(trainer, "loss")).all()
    assert not same_weights(before, weights(trainer))
    log = ba.Ledger.read(ledger)
    generated = np.bincount(log.frame.step.to_numpy(), minlength=STEPS)
    assert ((generated >= 16) & (generated <= 16 * policy.needs.generate)).all()
    assert not policy.cold(log.frame.prompt.tolist()).any()  # everything generated was observed
