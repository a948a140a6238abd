"""DEPO and GRESO: what they remember of visits, and who may be rolled out."""

import numpy as np
import pytest
from policy_steps import visit

from budgetalloc import Budget
from budgetalloc.methods import depo, greso


def eligible(policy, ids, seeds=60, **kwargs):
    """The prompts that one group goes to, over many seeds of the same history."""
    met = set()
    for seed in range(seeds):
        other = depo(seed=seed, **kwargs)
        other.load_state_dict(policy.state_dict() | {"seed": seed})
        met.add(ids[int(np.argmax(other.allocate(ids, Budget(8, floor=0))))])
    return met


def test_the_most_explorable_may_be_rolled_out_and_of_the_others_the_least_visited():
    policy, ids = depo(), ["always", "never", "rare", "half", "seldom"]
    visit(policy, always=8, never=0, rare=1, half=4, seldom=8)
    visit(policy, always=8, never=0, rare=1, half=4)
    assert eligible(policy, ids, alpha=0.2, decay=0.0, lowest=0.0, replay=0.2) == {"half", "seldom"}
    assert eligible(policy, ids, alpha=0.4, decay=0.0, lowest=0.0, replay=0.2) == {"half", "rare", "seldom"}


@pytest.mark.parametrize(("window", "best"), [(1, "late"), (2, "late"), (3, "steady"), (4, "steady")])
def test_explorability_is_the_mean_over_the_last_visits_of_the_window(window, best):
    # 2 sqrt(p (1-p)) of 3 of 8 is 0.968, of 4 of 8 is 1. Means of the last 1, 2, 3 and 4 visits:
    policy = depo(window=window)
    for late, steady, early in ((0, 3, 4), (0, 3, 4), (4, 3, 0), (4, 3, 0)):
        visit(policy, late=late, steady=steady, early=early)  # late 1, 1, .67, .5; steady .97; early 0, 0, .33, .5
    policy.observe(["late", "steady"], [float("nan")] * 2)  # no reward is no visit
    settings_ = {"window": window, "alpha": 0.4, "decay": 0.0, "lowest": 0.0, "replay": 1e-12}
    assert eligible(policy, ["late", "steady", "early"], **settings_) == {best}


def test_the_released_constants_are_the_defaults():
    """`txy77/DEPO@eb99f9a`: 1.0 - 0.03 e, at least 0.40, of 10 prompts of different explorability."""
    policy, ids, sizes = depo(), [f"p{k}" for k in range(10)], {}
    for visits in range(1, 26):
        policy.observe([x for x in ids for _ in range(20)], [float(j <= k) for k in range(10) for j in range(20)])
        if visits in (10, 25):
            sizes[visits] = len(eligible(policy, ids, replay=1e-12))
    assert sizes == {10: 7, 25: 4}


def test_the_share_falls_with_the_mean_number_of_visits_but_not_below_the_lowest():
    policy = depo()
    ids, sizes = [f"p{k}" for k in range(8)], []
    for _ in range(4):
        # 0 to 7 successes of 16: no two are equally explorable
        policy.observe([x for x in ids for _ in range(16)], [float(j < k) for k in range(8) for j in range(16)])
        policy.observe(["p0"], [0.0])
        sizes.append(len(eligible(policy, ids, alpha=0.75, decay=0.25, lowest=0.25, replay=1e-12)))
    assert sizes == [4, 2, 2, 2]  # 0.75 - 0.25 e for e = 1, 2 and so on, of 8


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


def test_greso_counts_visits_without_variance_in_a_row_of_one_kind():
    policy, ids = greso(), ["x", "y"]
    for passed in (8, 8, 0):
        visit(policy, x=passed, y=4)
    assert policy.memory.recall(ids)["run"].tolist() == [1, 0]
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
