"""E3: Algorithm 1, its bounds, and cold prompts."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_steps import observe

from budgetalloc import Budget
from budgetalloc.policies.published.across_prompts.e3 import e3, hardness_ranks, rank_shares

GRADED = {"solved": 1.0, "most": 0.75, "half": 0.5, "never": 0.0}


def paper_algorithm_1(ranks, rollouts, fewest, most):
    """Algorithm 1 of arXiv 2505.18573 as it stands: the proportional step is not clipped."""
    rest = rollouts - fewest * len(ranks)
    counts = [fewest + math.floor(rest * k / sum(ranks) + 1e-9) for k in ranks]
    left = rollouts - sum(counts)
    for at in sorted(range(len(ranks)), key=lambda at: -ranks[at]):
        extra = max(0, min(most - counts[at], left))
        counts[at], left = counts[at] + extra, left - extra
    return counts, left


@given(
    ranks=st.lists(st.integers(1, 100), min_size=1, max_size=20),
    fewest=st.integers(1, 8),
    data=st.data(),
)
@settings(max_examples=50, deadline=None)
def test_e3_follows_algorithm_1_wherever_that_keeps_to_the_bounds(ranks, fewest, data):
    most = fewest + data.draw(st.integers(0, 12))
    rollouts = data.draw(st.integers(len(ranks) * fewest, len(ranks) * most))
    counts = rank_shares(np.array(ranks) / 100, rollouts, fewest, most)
    assert counts.sum() == rollouts
    assert counts.min() >= fewest
    assert counts.max() <= most
    expected, left = paper_algorithm_1(ranks, rollouts, fewest, most)
    assume(max(expected) <= most and left == 0)
    assert counts.tolist() == expected


@given(ranks=st.lists(st.integers(1, 100), min_size=1, max_size=20, unique=True), fewest=st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_e3_never_gives_an_easier_prompt_more(ranks, fewest):
    ranks = sorted(ranks)
    counts = rank_shares(np.array(ranks) / 100, len(ranks) * (fewest + 2), fewest, fewest + 5)
    assert (np.diff(counts) >= 0).all()


def test_e3_clips_a_share_above_g_max_where_the_paper_does_not():
    ranks = [0.1, 0.1, 0.1, 1.0]  # computed by hand: 4 + floor(16 / 1.3) = 16
    assert paper_algorithm_1(ranks, 32, 4, 12)[0][3] == 16
    assert rank_shares(ranks, 32, 4, 12).tolist() == [8, 6, 6, 12]


def test_e3_gives_the_default_share_to_an_unknown_rank():
    assert rank_shares([0.2, np.nan, 1.0, 0.6], 32, 4, 12)[1] == 8  # exact: 4 + 16 * 0.6 / 2.4
    assert rank_shares([np.nan] * 3, 24, 4, 12).tolist() == [8, 8, 8]


def test_e3_ranks_of_equal_rates_are_equal_and_the_hardest_has_rank_1():
    assert hardness_ranks([0.0, 1.0, 0.0, 1.0, 0.5]).tolist() == [0.9, 0.3, 0.9, 0.3, 0.6]
    assert hardness_ranks([0.7]).tolist() == [1.0]
    assert hardness_ranks([]).size == 0


def test_e3_bounds_move_apart_by_two_an_epoch_to_4_and_12():
    policy, ids, seen = e3(epoch=2), [f"p{k}" for k in range(16)], []
    for _ in range(8):
        counts = policy.allocate(ids, Budget(128))
        seen.append((int(counts.min()), int(counts.max())))
        observe(policy, {x: k / 15 for k, x in enumerate(ids)}, group=15)
    assert seen[:2] == [(8, 8)] * 2
    assert all(6 <= low < high <= 10 for low, high in seen[2:4])
    assert all(4 <= low <= 5 and 11 <= high <= 12 for low, high in seen[4:])  # ranks 1/16 to 1


def test_e3_does_not_take_a_cold_prompt_for_the_easiest_as_the_released_code_does():
    policy = e3(epoch=1)
    for _ in range(2):
        observe(policy, GRADED)
    counts = dict(zip([*GRADED, "cold"], policy.allocate([*GRADED, "cold"], Budget(40)).tolist(), strict=True))
    assert counts["solved"] < counts["cold"] == 8 < counts["never"]


def test_e3_ranks_over_all_prompts_seen_and_not_over_the_batch():
    policy = e3(epoch=1)
    for _ in range(2):
        observe(policy, {**{f"easy {k}": 1.0 for k in range(20)}, "hard": 0.25, "harder": 0.0})
    # ranks 21/22 and 22/22 are nearly equal; within the batch they would be 1/2 and 1: 6 and 10
    assert policy.allocate(["hard", "harder"], Budget(16)).tolist() == [7, 9]


def test_e3_mean_is_cumulative_without_decay():
    policy = e3(epoch=1)
    for _ in range(9):
        observe(policy, {"learned": 0.0, "steady": 0.5})
    for _ in range(8):
        observe(policy, {"learned": 1.0, "steady": 0.5})  # 8 of 17 steps is still below a half
    learned, steady = policy.allocate(["learned", "steady"], Budget(16))
    assert learned > steady
    for _ in range(2):
        observe(policy, {"learned": 1.0, "steady": 0.5})
    learned, steady = policy.allocate(["learned", "steady"], Budget(16))
    assert learned < steady


def test_e3_mean_weighs_every_rollout_and_not_every_visit():
    policy = e3(epoch=1)
    observe(policy, {"a": 0.0, "b": 0.25}, group=4)
    observe(policy, {"a": 0.5}, group=40)  # 20 of 44 is more than 1 of 4; the mean of visits would be equal
    a, b = policy.allocate(["a", "b"], Budget(16))
    assert a < b
    observe(policy, {"c": 0.75}, group=4)
    observe(policy, {"d": 0.5}, group=4)
    observe(policy, {"d": 0.5}, group=4)  # 4 of 8 is less than 3 of 4
    c, d = policy.allocate(["c", "d"], Budget(16))
    assert c < d


def test_e3_takes_ranks_anew_only_when_an_epoch_ends():
    policy = e3(epoch=3)
    for at in range(6):
        counts = policy.allocate(["a", "b"], Budget(16)).tolist()
        assert counts == ([8, 8] if at < 3 else [7, 9])  # b was the harder one in the first epoch
        observe(policy, {"a": 1.0, "b": 0.0} if at < 3 else {"a": 0.0, "b": 1.0}, group=8 if at < 3 else 80)
    assert policy.allocate(["a", "b"], Budget(16)).tolist() == [10, 6]  # exact: 4 + 8 / 1.5 and the one left over


def test_e3_bounds_are_scaled_to_the_mean_of_the_budget():
    policy = e3(epoch=1)
    for _ in range(3):
        observe(policy, GRADED)
    assert policy.allocate([*GRADED], Budget(128)).tolist() == [22, 28, 35, 43]  # 16 + floor(64 k / 2.5), two left


def test_e3_draws_a_batch_of_groups_where_it_may_leave_prompts_out():
    policy = e3()
    counts = policy.allocate(list(range(100)), Budget(64, floor=0))
    assert sorted(counts.tolist())[-8:] == [8] * 8
    policy.observe([0], [1.0])
    assert (policy.allocate(list(range(100)), Budget(64, floor=0)) != counts).any()
