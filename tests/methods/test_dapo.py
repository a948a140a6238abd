"""DAPO: new prompts until the mixed groups fill the batch."""

from policy_steps import play

from budgetalloc import Budget
from budgetalloc.methods.dapo import dapo


def test_dapo_stops_when_the_mixed_groups_fill_the_batch_and_never_before():
    ids = list(range(200))
    graded, _ = play(dapo(seed=0), ids, Budget(768, floor=0), dict.fromkeys(ids, 0.5))
    assert graded.shape[0] <= 2
    hopeless, _ = play(dapo(seed=0), ids, Budget(768, floor=0), dict.fromkeys(ids, 0.0))
    assert hopeless.shape[0] == 3
    assert hopeless.sum() == 768
    assert hopeless.sum(axis=0).max() == 8  # always new prompts


def test_thompson_dapo_tries_promising_prompts_first():
    policy = dapo(order="thompson", generate=2, discount=1.0, idle=1.0, seed=0)
    for _ in range(20):
        policy.observe(["solved"] * 8 + ["third"] * 9, [1] * 8 + [1, 0, 0] * 3)
    first = policy.begin(["solved", "third"], Budget(16, floor=0)).request()
    assert first.tolist() == [0, 8]
