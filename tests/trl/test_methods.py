"""Every method of the table trains in TRL's real trainer."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.policies.methods import METHODS
from budgetalloc.trl import AdaptiveGRPOCallback

STEPS = 3
MEASURING = ("adarft", "sgpo", "a_star_po")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_trains(build, losses, tmp_path, method):
    ledger = tmp_path / "ledger.jsonl"
    trainer = build(max_steps=STEPS)
    # What measures every prompt first would train on nothing in so few steps.
    given = {"offline": dict.fromkeys(range(100), (4, 8))} if method.name in MEASURING else {}
    policy = method.build(seed=1, **given)
    before = trainer.model.get_input_embeddings().weight.detach().clone()
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, ledger=ledger))
    trainer.train()
    assert np.isfinite(losses(trainer)).all()
    assert not before.equal(trainer.model.get_input_embeddings().weight.detach())  # something was learned from
    log = ba.Ledger.read(ledger)
    generated = np.bincount(log.step_R, minlength=STEPS)
    assert ((generated >= 16) & (generated <= 16 * policy.needs.generate)).all()
    assert not policy.cold(log.ids_R).any()  # everything generated was observed
