"""DEPO: explorability against advantages, who may be rolled out, and what it remembers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_steps import visit

from budgetalloc import Budget
from budgetalloc.methods.depo import depo, depo_eligible


def eligible(policy, ids, seeds=60, **kwargs):
    """The prompts that one group goes to, over many seeds of the same history."""
    met = set()
    for seed in range(seeds):
        other = depo(seed=seed, **kwargs)
        other.load_state_dict(policy.state_dict() | {"seed": seed})
        met.add(ids[int(np.argmax(other.allocate(ids, Budget(8, floor=0))))])
    return met


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)), min_size=1, max_size=20), st.floats(0, 1), st.floats(0, 1)
)
@settings(max_examples=50, deadline=None)
def test_the_most_explorable_and_the_least_visited_are_eligible(prompts, share, replay):
    explorable_P, visits_P = (np.array(column, dtype=float) for column in zip(*prompts, strict=True))
    chosen_P = depo_eligible(explorable_P, visits_P, share, replay)
    first = int(np.ceil(share * len(prompts) - 1e-9))
    assert chosen_P.sum() == min(first + int(np.ceil(replay * len(prompts) - 1e-9)), len(prompts))
    if first:
        assert chosen_P[explorable_P > np.sort(explorable_P)[::-1][first - 1]].all()
    alone_P = depo_eligible(explorable_P, visits_P, share, 0.0)
    replayed_P = chosen_P & ~alone_P
    if replayed_P.any() and not chosen_P.all():
        assert visits_P[replayed_P].max() <= visits_P[~chosen_P].min()


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


def test_fewer_visits_than_the_window_are_averaged():
    policy = depo(window=3)
    visit(policy, thrice=4, once=4)
    visit(policy, thrice=4)
    visit(policy, thrice=3)  # a mean of 0.99 against 1
    assert eligible(policy, ["thrice", "once"], alpha=0.5, decay=0.0, replay=1e-12) == {"once"}


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


def test_a_prompt_without_signal_comes_back_by_replay():
    policy, rng = depo(alpha=0.3, lowest=0.3, seed=1), np.random.default_rng(0)
    met = []
    for _ in range(120):
        counts_P = policy.allocate(list(range(40)), Budget(64, floor=0))
        rates_R = np.repeat(np.where(np.arange(40) < 4, 1.0, 0.5), counts_P)
        policy.observe(np.repeat(np.arange(40), counts_P), rng.random(rates_R.size) < rates_R)
        met.append(counts_P[:4] > 0)
    assert np.sum(met[40:], axis=0).min() > 3  # all four solved prompts, again and again
