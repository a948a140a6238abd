"""GRESO: runs without variance, and the chances to keep a prompt."""

import pytest
from policy_steps import visit

from budgetalloc import Budget
from budgetalloc.methods.greso import greso

NAN = float("nan")


def test_greso_keeps_with_p_to_the_power_of_the_run():
    # A run of 3 at p_e = 0.5 is kept with 1/8; two prompts, one group: the fresh one loses where the other is kept and
    # wins the draw of the order, so the other is chosen with 1/8 * 1/2.
    policy = greso(change=0.0, seed=0)
    for _ in range(3):
        visit(policy, flat=8, fresh=4)
    state, chosen, runs = policy.state_dict(), 0, 800
    for seed in range(runs):
        other = greso(change=0.0, seed=seed)
        other.load_state_dict(state | {"seed": seed})
        chosen += other.allocate(["flat", "fresh"], Budget(8, floor=0))[0] > 0
    assert abs(chosen / runs - 1 / 16) < 4 * (1 / 16 * 15 / 16 / runs) ** 0.5


def test_greso_the_chance_to_keep_has_a_floor():
    policy, chosen = greso(), 0
    for _ in range(9):
        visit(policy, flat=8, fresh=4)
    for seed in range(100):
        other = greso(least=1.0, seed=seed)  # no prompt is skipped; only the order decides
        other.load_state_dict(policy.state_dict() | {"seed": seed})
        chosen += other.allocate(["flat", "fresh"], Budget(8, floor=0))[0] > 0
    assert 30 <= chosen <= 70


def test_greso_counts_visits_without_variance_in_a_row_whichever_kind():
    policy, ids = greso(), ["x", "y"]
    for passed in (8, 8, 0):
        visit(policy, x=passed, y=4)
    assert policy.memory.recall(ids)["run"].tolist() == [3, 0]
    assert policy.memory.recall(ids)["easy"].tolist() == [0, 0]
    visit(policy, x=7, y=8)
    assert policy.memory.recall(ids)["run"].tolist() == [0, 1]
    policy.observe(["y"], [0.0])  # one rollout shows no variance either way
    policy.observe(["y"] * 3, [NAN, NAN, NAN])
    assert policy.memory.recall(ids)["run"].tolist() == [0, 1]


def test_greso_moves_each_chance_towards_its_own_target():
    policy = greso(target=0.3, change=0.1)  # easy 0.1, hard 0.2 of the groups
    visit(policy, a=8, b=4, c=4, d=4)  # 1/4 easy: too many; none hard: too few
    assert policy.memory.numbers == pytest.approx({"easy": 0.4, "hard": 0.6})
    visit(policy, a=0, b=0, c=4, d=4)
    assert policy.memory.numbers == pytest.approx({"easy": 0.5, "hard": 0.5})
    policy.observe(["a"], [NAN])  # a step without evidence moves nothing
    assert policy.memory.numbers == pytest.approx({"easy": 0.5, "hard": 0.5})
    visit(policy, a=8, b=0, c=4, d=4, e=4, f=4, g=4)  # 1/7 of each lies between the targets
    assert policy.memory.numbers == pytest.approx({"easy": 0.4, "hard": 0.6})
    for _ in range(10):
        visit(policy, a=8)
    assert policy.memory.numbers == pytest.approx({"easy": 0.05, "hard": 0.95})
