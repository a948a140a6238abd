"""Policies that generate more than they train on: equal counts, and what each keeps."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Budget, BudgetError, InputError
from budgetalloc.policies.generate_more import cppo, d3s, keep_mixed, pods, roc, shuffle_r1, top_p

POLICIES = {
    "pods": pods,
    "d3s": d3s,
    "cppo": cppo,
    "shuffle_r1": shuffle_r1,
    "roc": roc,
    "roc drawn": lambda **kw: roc(penalty=1, choose="drawn", **kw),
    "keep_mixed": keep_mixed,
    "top_p": top_p,
}
each_policy = pytest.mark.parametrize("name", POLICIES)


@each_policy
@given(
    prompts=st.integers(1, 13),
    units=st.integers(1, 60),
    floor=st.integers(0, 3),
    cap=st.none() | st.integers(1, 24),
    quantum=st.sampled_from([1, 2, 3]),
    min_group=st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_counts_are_uniform_and_spend_the_budget(name, prompts, units, floor, cap, quantum, min_group):
    try:
        budget = Budget(units * quantum, floor=floor, cap=cap, quantum=quantum, min_group=min(min_group, floor or 9))
        budget.check(prompts)
    except BudgetError:
        assume(False)
    counts_P = POLICIES[name]().allocate(range(prompts), budget)
    assert counts_P.sum() == budget.rollouts
    assert set(counts_P.tolist()) <= set(budget.grid().tolist())
    given_P = counts_P[counts_P > 0]
    assert given_P.max() - given_P.min() <= quantum


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
    policy = POLICIES[name](generate=3, seed=2)
    assert policy.needs.generate == 3
    assert not policy.needs.keep_batch
    assert "generate=3" in policy.name
    assert "seed=2" in policy.name


def step(groups):
    """Ids and rewards of groups given as (successes, failures)."""
    ids = [at for at, n in enumerate(groups) for _ in range(sum(n))]
    return ids, np.array([x for wins, losses in groups for x in [1.0] * wins + [0.0] * losses])


def kept_of(policy, groups, rows, scores_RF=None):
    """The (successes, failures) kept of each group."""
    ids, rewards = step(groups)
    kept = policy.keep(ids, rewards, rows, scores_RF)
    return [
        (sum(ids[k] == at and rewards[k] == 1 for k in kept), sum(ids[k] == at and rewards[k] == 0 for k in kept))
        for at in range(len(groups))
    ]


GROUPS = [(1, 7), (4, 4), (8, 0), (0, 8)]


def test_inside_groups_every_group_keeps_its_share():
    assert kept_of(pods(), GROUPS, 16) == [(1, 3), (2, 2), (4, 0), (0, 4)]
    assert kept_of(cppo(), GROUPS, 8) == [(1, 1), (2, 0), (2, 0), (0, 2)]


def test_across_groups_only_mixed_groups_are_kept():
    kept = kept_of(d3s(), GROUPS, 8)
    assert kept[0][0] == 1
    assert kept[2:] == [(0, 0), (0, 0)]
    assert kept_of(keep_mixed(), GROUPS, 16) == [(1, 7), (4, 4), (0, 0), (0, 0)]
    assert kept_of(top_p(share=0.6), GROUPS, 8) == [(0, 0), (4, 4), (0, 0), (0, 0)]  # variances 1/8, 2/7: 70 %


def test_roc_keeps_proportions():
    assert kept_of(roc(), GROUPS, 16) == [(1, 3), (2, 2), (4, 0), (0, 4)]


def test_shuffle_r1_repeats_the_pairs_that_matter():
    ids, rewards = step(GROUPS)
    kept = shuffle_r1(draws=4).keep(ids, rewards, 16, None)
    counts = np.bincount(kept, minlength=32)
    assert counts[:16].sum() == 16  # every draw finds positive weights enough
    assert counts.max() > 1
    assert counts.max() <= 4
    other = shuffle_r1(draws=4, seed=1).keep(ids, rewards, 16, None)
    assert not np.array_equal(kept, other)


def test_roc_reads_the_penalty_from_the_column_of_its_reward_function():
    ids, rewards = ["a"] * 6, np.array([1.0, 1, 1, 0, 0, 0])
    scores_RF = np.stack([rewards, [0.5, 0.2, 0.0, 0, 0, 0]], axis=1)
    assert roc(penalty=1).keep(ids, rewards, 4, scores_RF).tolist() == [1, 2, 3, 4]
    assert roc().keep(ids, rewards, 4, scores_RF).tolist() == [0, 1, 3, 4]
    with pytest.raises(InputError, match=r"penalty=2: of the columns .* there are 2"):
        roc(penalty=2).keep(ids, rewards, 4, scores_RF)
    with pytest.raises(InputError, match="none was passed"):
        roc(penalty=1).keep(ids, rewards, 4, None)


def test_a_simulated_step_trains_on_a_part_of_what_it_generates():
    world = ba.Learner(seed=0)
    runs = list(ba.simulate(pods(generate=2), world, 64, 2, prompts=8))
    assert runs[-1]["rollouts"] == 2 * 2 * 64


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: pods(generate=1), "generate=1"),
        (lambda: shuffle_r1(draws=0), "draws=0"),
        (lambda: roc(choose="best"), "choose='best'"),
        (lambda: roc(penalty=-1), "penalty=-1"),
        (lambda: top_p(share=0.0), "share=0.0"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
