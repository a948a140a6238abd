"""DEPO: explorability against advantages, who may be rolled out, and what it remembers."""

import numpy as np
import pytest
from policy_steps import visit

from budgetalloc import Budget
from budgetalloc.methods.depo import depo


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
    settings_ = {"window": window, "alpha": 0.3, "decay": 0.0, "lowest": 0.0, "replay": 1e-12}
    assert eligible(policy, ["late", "steady", "early"], **settings_) == {best}


def test_the_share_falls_with_the_mean_number_of_visits_but_not_below_the_lowest():
    policy = depo()
    ids, sizes = [f"p{k}" for k in range(8)], []
    for _ in range(4):
        # 0 to 7 successes of 16: no two are equally explorable
        policy.observe([x for x in ids for _ in range(16)], [float(j < k) for k in range(8) for j in range(16)])
        policy.observe(["p0"], [0.0])
        sizes.append(len(eligible(policy, ids, alpha=0.75, decay=0.25, lowest=0.25, replay=1e-12)))
    assert sizes == [4, 2, 2, 2]  # 0.75 - 0.25 e for e = 1, 2 and so on, of 8


def test_a_cold_prompt_is_not_a_solved_one():
    policy = depo()
    visit(policy, solved=8, failed=0, half=4)
    assert eligible(policy, ["solved", "new", "half"], alpha=0.3, decay=0.0, lowest=0.0, replay=1e-12) == {"new"}
