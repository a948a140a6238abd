"""MASA: predictions of exactly 0 and 1 are shut out."""

import pytest

from budgetalloc import Budget, InputError
from budgetalloc.policies.published.which_prompts.masa import masa


def chosen(build, history, ids, budget=None, seeds=60):
    """The prompts that are ever met, over many seeds of the same history."""
    met = set()
    for seed in range(seeds):
        policy = build(seed=seed)
        for ids_R, rewards_R in history:
            policy.observe(ids_R, rewards_R)
        counts_P = policy.allocate(ids, budget or Budget(8, floor=0))
        assert counts_P.sum() == (budget or Budget(8)).rollouts
        met |= {x for x, n in zip(ids, counts_P.tolist(), strict=True) if n}
    return met


SEEN = [(["solved"] * 8 + ["half"] * 8 + ["failed"] * 8, [1.0] * 8 + [0.0, 1.0] * 4 + [0.0] * 8)]


IDS = ["solved", "half", "failed", "new"]


def test_masa_shuts_out_predictions_of_exactly_0_and_1():
    rates = {"a": 0.0, "b": 1e-3, "c": 0.999, "d": 1.0}
    build = lambda seed: masa(explore=0.0, predict=lambda view: [rates[x] for x in view.ids_P], seed=seed)  # noqa: E731
    assert chosen(build, [], list(rates), Budget(16, floor=0)) == {"b", "c"}
    assert chosen(lambda seed: masa(explore=0.0, seed=seed), SEEN, IDS, Budget(16, floor=0)) == {"half", "new"}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: masa(explore=2), "explore=2"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
