"""E3: Algorithm 1, its bounds, and cold prompts."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.e3 import e3, hardness_ranks, rank_shares


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


def test_e3_gives_the_default_share_to_an_unknown_rank():
    assert rank_shares(np.array([0.2, np.nan, 1.0, 0.6]), 32, 4, 12)[1] == 8  # exact: 4 + 16 * 0.6 / 2.4
    assert rank_shares(np.full(3, np.nan), 24, 4, 12).tolist() == [8, 8, 8]


VISITS = st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=9))


@given(history=st.lists(VISITS, max_size=9), epoch=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_e3_shares_by_the_mean_of_all_rollouts_ranked_at_the_end_of_the_last_epoch(history, epoch):
    """Over all prompts seen, not over the batch; a cold prompt is not the easiest, as it is in the released code."""
    policy, rewards, ranks = e3(epoch=epoch), {}, {}
    for step, visits in enumerate(history, 1):
        policy.observe([x for x, rs in visits.items() for _ in rs], [r for rs in visits.values() for r in rs])
        for x, rs in visits.items():
            rewards[x] = rewards.get(x, []) + rs
        if step % epoch == 0:
            ranks = dict(
                zip(rewards, hardness_ranks(np.array([np.mean(rs) for rs in rewards.values()])).tolist(), strict=True)
            )
    apart = min(2 * (len(history) // epoch), 4)  # the bounds move by 2 an epoch, to 4 and 12
    for ids in (["a", "cold", "c", "d"], ["b", "a"]):
        rank_P = [ranks.get(x, np.nan) for x in ids]
        expected_P = rank_shares(np.array(rank_P), 8 * len(ids), 8 - apart, 8 + apart).tolist()
        counts_P = policy.allocate(ids, Budget(8 * len(ids))).tolist()
        # Of prompts with equal ranks, a draw decides which gets a rollout that is left.
        filled_P = np.nan_to_num(rank_P, nan=np.mean([rank for rank in rank_P if rank == rank] or [1.0])).tolist()
        assert sorted(zip(filled_P, counts_P, strict=True)) == sorted(zip(filled_P, expected_P, strict=True))
