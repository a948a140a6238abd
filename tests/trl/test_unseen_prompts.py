"""A first epoch without history is reported once by TRL's trainer too."""

import pytest

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback


@pytest.mark.parametrize(("policy", "said"), [(ba.knapsack, 1), (ba.uniform, 0), (ba.thompson, 0)])
def test_a_first_epoch_of_many_steps_is_said_for_policies_of_the_batch(build, caplog, policy, said, monkeypatch):
    monkeypatch.setattr("budgetalloc.training.unseen_prompts._COLD_STEPS", 2)
    trainer = build(max_steps=2)
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy()))
    trainer.train()
    assert caplog.text.count("had been seen before") == said
