"""Methods that generate more than they train on: uniform counts, and rows kept the same each time."""

import numpy as np
import pytest
from budgets import prompts_and_budgets
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.methods.table import METHODS

POLICIES = {method.name: method.build for method in METHODS if method.decides == "which rollouts"}
POLICIES["roc drawn"] = lambda **given: ba.methods.roc(penalty=1, choose="drawn", **given)
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


@each_policy
def test_asks_a_trainer_for_more_than_it_trains_on(name):
    policy = POLICIES[name](generate=3)
    assert policy.needs.generate == 3
    assert not policy.needs.keep_batch


def test_a_simulated_step_trains_on_a_part_of_what_it_generates():
    world = ba.Learner(seed=0)
    runs = list(ba.simulate(ba.methods.pods(generate=2), world, 64, 2, prompts=8))
    assert runs[-1]["rollouts"] == 2 * 2 * 64
