"""Methods that generate more than they train on: uniform counts, and rows kept the same each time."""

from dataclasses import replace

import numpy as np
import pytest
from budgets import prompts_and_budgets
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_steps import kept_of

import budgetalloc as ba
from budgetalloc import InputError
from budgetalloc.methods import cppo, d3s, keep_mixed, pods, roc, top_p
from budgetalloc.methods.table import METHODS

POLICIES = {method.name: method.build for method in METHODS if method.decides == "which rollouts"}
each_policy = pytest.mark.parametrize("name", POLICIES)


@each_policy
@given(prompts_and_budgets())
@settings(max_examples=25, deadline=None)
def test_counts_are_uniform_and_spend_the_budget(name, case):
    prompts, budget = case
    counts_P = POLICIES[name]().allocate(range(prompts), budget)
    assert counts_P.sum() == budget.rollouts
    assert set(counts_P.tolist()) <= set(budget.grid().tolist())
    given_P = counts_P[counts_P > 0]
    assert given_P.max() - given_P.min() <= budget.quantum


@each_policy
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_keeps_as_many_rows_as_are_trained_on_the_same_each_time(name, data):
    ids = data.draw(st.lists(st.sampled_from(["a", "b", 3]), min_size=1, max_size=24))
    reward = st.sampled_from([0.0, 0.3, 1.0, float("nan")])
    rewards = np.array(data.draw(st.lists(reward, min_size=len(ids), max_size=len(ids))))
    scores_RF = np.stack([rewards, np.abs(rewards - 0.5)], axis=1)
    rows = data.draw(st.integers(1, len(ids)))
    kept = POLICIES[name](seed=3).keep(ids, rewards, rows, scores_RF)
    assert len(kept) == rows
    assert kept.min() >= 0
    assert kept.max() < len(ids)
    assert (np.diff(kept) >= (0 if name == "shuffle_r1" else 1)).all()
    assert np.array_equal(kept, POLICIES[name](seed=3).keep(ids, rewards, rows, scores_RF))


def test_inside_groups_every_group_keeps_its_share():
    assert kept_of(pods(), 16) == [(1, 3), (2, 2), (4, 0), (0, 4)]
    assert kept_of(cppo(), 8) == [(1, 1), (2, 0), (2, 0), (0, 2)]


def test_across_groups_only_mixed_groups_are_kept():
    assert kept_of(d3s(), 8) == [(1, 0), (3, 4), (0, 0), (0, 0)]


def test_only_mixed_groups_are_kept():
    assert kept_of(keep_mixed(), 16) == [(1, 7), (4, 4), (0, 0), (0, 0)]
    assert kept_of(top_p(share=0.6), 8) == [(0, 0), (4, 4), (0, 0), (0, 0)]  # variances 1/8, 2/7: 70 %


def test_roc_keeps_proportions():
    assert kept_of(roc(), 16) == [(1, 3), (2, 2), (4, 0), (0, 4)]


def test_roc_reads_the_penalty_from_the_column_of_its_reward_function():
    ids, rewards = ["a"] * 6, np.array([1.0, 1, 1, 0, 0, 0])
    scores_RF = np.stack([rewards, [0.5, 0.2, 0.0, 0, 0, 0]], axis=1)
    assert roc(penalty=1).keep(ids, rewards, 4, scores_RF).tolist() == [1, 2, 3, 4]
    assert roc().keep(ids, rewards, 4, scores_RF).tolist() == [0, 1, 3, 4]
    with pytest.raises(InputError, match="penalty=2: scores_RF has the rewards of 2 functions"):
        roc(penalty=2).keep(ids, rewards, 4, scores_RF)
    with pytest.raises(InputError, match="rewards of 0 functions"):
        roc(penalty=1).keep(ids, rewards, 4, None)


def test_another_seed_of_a_policy_is_the_seed_of_what_it_keeps():
    rewards = np.tile([0.0, 0.2, 0.9, 1.0], 8)
    ids = np.repeat(np.arange(8), 4).tolist()
    kept = [
        policy.keep(ids, rewards, 12).tolist()
        for seed in (0, 5, 6)
        for policy in (ba.methods.shuffle_r1(seed=seed), replace(ba.methods.shuffle_r1(), seed=seed))
    ]
    assert kept[0::2] == kept[1::2]
    assert len(set(map(tuple, kept))) == 3
