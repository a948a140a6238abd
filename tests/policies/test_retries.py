"""Prompts whose rollouts all failed go on in the next step."""

from dataclasses import replace

import numpy as np
import pytest
from budgets import budgets
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Budget, InputError, UnsupportedError
from budgetalloc.policies import growing, retrying, sampled

IDS = list(range(13))


def step(policy, ids, budget, passes):
    """Counts of a step whose rollouts succeed for prompts in `passes`."""
    counts_P = policy.allocate(ids, budget)
    ids_R = np.repeat(ids, counts_P)
    policy.observe(ids_R.tolist(), np.isin(ids_R, list(passes)).astype(float))
    return dict(zip(ids, counts_P.tolist(), strict=True))


def test_a_prompt_doubles_while_it_fails_and_then_it_is_one_of_the_others():
    policy, budget, ids = retrying(sampled(groups=2, explore=1)), Budget(4, floor=0, min_group=1), list(range(50))
    first = step(policy, ids, budget, ())
    failed = [x for x in ids if first[x]]
    assert [first[x] for x in failed] == [2, 2]
    second = step(policy, ids, budget, failed[:1])
    assert [second[x] for x in failed] == [2, 2]
    third = step(policy, ids, budget, ())
    assert third[failed[1]] == 4  # of the two that were left over, the one that passed is not retried
    assert step(policy, ids, budget, ())[failed[1]] == 0  # it has failed 8 times


def test_a_prompt_that_was_given_up_is_retried_again_after_a_success():
    policy, budget = retrying(sampled(), most=4), Budget(4, floor=0, min_group=1)
    for rewards, retried in (([0] * 3, 1), ([0], 0), ([0], 0), ([1, 0], 0), ([0, 0], 2), ([0, 1], 0)):
        policy.observe(["a"] * len(rewards), rewards)
        recalled = policy.memory.recall(["a"])["failures"][0]
        assert (policy.memory.held() == ["a"]) == bool(retried), recalled
        if retried:
            assert policy.allocate(["a", "b", "c", "d", "e"], budget)[0] == retried


def test_one_failure_is_retried_once_and_what_no_other_can_take_goes_to_those_that_wait():
    policy, budget = retrying(sampled()), Budget(3, floor=0, min_group=1)
    policy.observe(["a"], [0])
    assert sorted(policy.allocate(["a", "b"], budget).tolist()) == [1, 2]
    assert policy.allocate(["a", "b"], budget)[0] == 1
    policy.observe(["b"], [0])
    assert policy.allocate(["a", "b"], budget).sum() == 3


def test_a_prompt_whose_retries_are_never_scored_is_given_up():
    policy, budget = retrying(sampled()), Budget(8, floor=0, min_group=1)
    policy.observe(["a", "a", "b"], [0, 0, 1])
    for retried in (2, 4):
        assert policy.allocate(list("abcdefghi"), budget)[0] == retried
        policy.observe([*["a"] * retried, "b", "new"], [None] * (retried + 2))
    assert not policy.memory.held()
    assert policy.memory.recall(["a", "b", "new"])["failures"].tolist() == [8, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_prompts_that_lose_their_rewards_take_no_more_than_their_share(seed):
    """Half of the pool fails at first and is never scored again."""
    session = ba.Session(ba.adaptive(seed=seed), ["reward"], pool=list(range(128)), min_group=1)
    rng, share = np.random.default_rng(seed), []
    for at in range(60):
        session.begin([], rollouts=32, group=8)
        ids = np.array(session.request())
        rewards_R = np.where(at < 3, 0.0, np.where(ids % 2, rng.random(len(ids)) < 0.5, np.nan))
        session.observe(ids.tolist(), rewards_R, lengths_R=[1] * len(ids))
        session.end()
        share.append(np.mean(ids % 2 == 0))
    assert 0.3 < np.mean(share[20:]) < 0.6


def test_a_policy_with_a_rule_for_features_retries_by_it_too():
    def to_five(view):
        return np.where(np.array(view.ids_P) == 5, view.budget.rollouts, 0)

    features, budget = ba.Features(range(6), [[float(x % 2)] for x in range(6)]), Budget(8, floor=0, min_group=1)
    own = retrying(replace(sampled(), featured=replace(sampled(), decide=to_five)))
    for policy, last in ((own.with_features(features), 5), (retrying(sampled()).with_features(features), None)):
        policy.observe([0, 0, 1], [0, 0, 0])
        counts = policy.allocate(range(6), budget)
        assert counts[:2].tolist() == [2, 1]
        assert (counts[5] == 5) == (last == 5)


def test_the_batch_of_the_loader_is_not_kept():
    assert ba.uniform().needs.keep_batch
    assert not retrying(ba.uniform()).needs.keep_batch


def test_failures_wait_for_a_step_that_can_pay_them():
    policy = retrying(ba.uniform())
    policy.observe(np.repeat(range(6), 4), np.zeros(24))
    budget, seen = Budget(8, floor=0, min_group=1), []
    for _ in range(3):
        counts = step(policy, list(range(100)), budget, range(6))
        seen += [x for x in counts if counts[x]]
        assert [counts[x] for x in counts if counts[x]] == [4, 4]
    assert sorted(seen) == list(range(6))


@given(budget=budgets(13), seed=st.integers(0, 2**20), rate=st.sampled_from([0.0, 0.2, 0.6]), most=st.integers(2, 9))
@settings(max_examples=100, deadline=None)
def test_every_step_spends_its_budget_in_groups_that_it_allows(budget, seed, rate, most):
    policy, rng = retrying(sampled(groups=2, explore=1, seed=seed % 7), most=most), np.random.default_rng(seed)
    for _ in range(4):
        counts_P = policy.allocate(IDS, budget)
        assert counts_P.sum() == budget.rollouts
        assert np.isin(counts_P, budget.grid()).all()
        ids_R = np.repeat(IDS, counts_P)
        policy.observe(ids_R.tolist(), (rng.random(len(ids_R)) < rate).astype(float))


@pytest.mark.parametrize(
    "budget",
    [Budget(26, floor=2), Budget(16, floor=0, quotas={"a": (4, 8), "b": (0, 16)}), Budget(None, tokens=1000, cap=8)],
)
def test_with_a_floor_quotas_or_tokens_the_policy_decides_alone(budget):
    counts = []
    for wrap in (retrying, lambda policy: policy):
        policy = wrap(sampled(seed=3))
        policy.observe(np.repeat(IDS, 2), np.zeros(26))
        more = {"domains_P": list("ab" * 6 + "a")} if budget.quotas else {}
        counts.append(policy.allocate(IDS, budget, costs_P=[10.0] * 13 if budget.tokens else None, **more).tolist())
    assert counts[0] == counts[1]


def test_a_part_of_a_large_pool_holds_all_that_failed():
    pool, budget = ba.Pool(range(300_000)), Budget(64, floor=0, min_group=1)
    policy = retrying(sampled(groups=2, explore=1))
    failed = [5, 77_777, 299_999]
    assert policy.allocate(pool, budget).sum() == 64  # nothing has failed yet
    policy.observe(np.repeat(failed, 2), np.zeros(6))
    counts_P = policy.allocate(pool, budget)
    assert counts_P[failed].tolist() == [2, 2, 2]
    turned = policy.allocate(ba.Pool(range(299_999, -1, -1)), budget)
    assert (turned[::-1] == counts_P).all()


def test_what_cannot_retry_is_refused():
    with pytest.raises(UnsupportedError, match="without a memory"):
        retrying(ba.methods.greso())
    with pytest.raises(UnsupportedError, match="once a step"):
        retrying(growing(ba.uniform())).begin(["a", "b"], Budget(16)).request()
    with pytest.raises(InputError, match="most"):
        retrying(ba.uniform(), most=1)
    with pytest.raises(InputError, match="policy='uniform'"):
        retrying("uniform")


def test_the_rollouts_of_a_draw_are_those_of_the_docs():
    """300 prompts each of six rates; with one failure more a prompt waits, which the formula leaves out."""
    rate_P, rng = np.repeat([1.0, 0.9, 0.5, 0.3, 0.1, 0.02], 300), np.random.default_rng(0)
    policy, budget = retrying(sampled(groups=1, explore=1)), Budget(64, floor=0, min_group=1)
    total_P, ids = np.zeros(len(rate_P)), list(range(len(rate_P)))
    for at in range(1600):
        counts_P = policy.allocate(ids, budget)
        ids_R = np.repeat(ids, counts_P)
        policy.observe(ids_R.tolist(), (rng.random(len(ids_R)) < rate_P[ids_R]).astype(float))
        total_P += counts_P * (at >= 400)
    found = total_P.reshape(6, 300).mean(axis=1)
    q, p = 1 - rate_P[::300], rate_P[::300]
    given_up = q**8 / p
    expected = (1 + q + 2 * q**2 + 4 * q**4 + given_up) / (1 + given_up)
    np.testing.assert_allclose(found / found[0], expected, rtol=0.13)


def test_a_state_without_a_memory_names_the_policy_that_goes_on_with_it():
    before = sampled(groups=2, seed=3)
    before.observe(["a", "b"], [0, 1])
    policy = ba.adaptive(seed=3)
    with pytest.raises(ba.StateError, match=r"has no memory.*policies.sampled\(groups=2, seed=3\)"):
        policy.load_state_dict(before.state_dict())
    assert policy.estimator.step == 0
