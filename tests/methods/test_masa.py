"""MASA: prompts with predictions of exactly 0 and 1 are skipped."""

from policy_steps import chosen

from budgetalloc import Budget
from budgetalloc.methods.masa import masa

SEEN = [(["solved"] * 8 + ["half"] * 8 + ["failed"] * 8, [1.0] * 8 + [0.0, 1.0] * 4 + [0.0] * 8)]
IDS = ["solved", "half", "failed", "new"]


def test_masa_skips_predictions_of_exactly_0_and_1():
    rates = {"a": 0.0, "b": 1e-3, "c": 0.999, "d": 1.0}
    build = lambda seed: masa(explore=0.0, predict=lambda view: [rates[x] for x in view.ids_P], seed=seed)  # noqa: E731
    assert chosen(build, [], list(rates), Budget(16, floor=0)) == {"b", "c"}
    assert chosen(lambda seed: masa(explore=0.0, seed=seed), SEEN, IDS, Budget(16, floor=0)) == {"half", "new"}
