"""Reinforce-Ada: quotas of successes and failures."""

from policy_steps import play

from budgetalloc import Budget
from budgetalloc.methods.reinforce_ada import reinforce_ada


def test_reinforce_ada_goes_on_until_both_quotas_are_met():
    ids = ["never", "half", "always"]
    rates = {"never": 0.0, "half": 0.5, "always": 1.0}
    counts, _ = play(reinforce_ada(group=8, stages=4, seed=0), ids, Budget(96, floor=2), rates)
    total = dict(zip(ids, counts.sum(axis=0).tolist(), strict=True))
    assert total["never"] == total["always"] == 32
    assert total["half"] in (8, 16, 24)


def test_reinforce_ada_of_successes_stops_at_the_first_success():
    rates = {"never": 0.0, "half": 0.5, "always": 1.0}
    counts, _ = play(reinforce_ada(quota="positive", seed=0), list(rates), Budget(96, floor=2), rates)
    assert counts.sum(axis=0).tolist() == [32, 8, 8]  # one round of 8 at rate 1/2 has no success once in 256
