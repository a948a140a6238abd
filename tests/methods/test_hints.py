"""Hints for prompts that nothing solves: who gets them, what they cost, and what they must not teach."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import Budget, InputError, Policy
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory
from budgetalloc.methods.hints import on_all_fail
from budgetalloc.methods.table import METHODS


def everybody(ids):
    return None


def play(policy, ids, budget, rates, seed=0, hinted_rate=1.0):
    """One step against known rates: the plain rounds' counts and the hinted rounds', each shape (rounds, P)."""
    rng = np.random.default_rng(seed)
    step = policy.begin(ids, budget)
    plain, hinted = [np.zeros(len(ids), dtype=int)], [np.zeros(len(ids), dtype=int)]
    while (counts_P := step.request()).any():
        (hinted if step.hinted else plain).append(counts_P)
        ids_R = [x for x, n in zip(ids, counts_P.tolist(), strict=True) for _ in range(n)]
        rate_R = [hinted_rate if step.hinted else rates[x] for x in ids_R]
        step.observe(ids_R, (rng.random(len(ids_R)) < rate_R).astype(float), hinted=step.hinted)
    step.end()
    return np.array(plain), np.array(hinted)


def test_only_prompts_whose_rollouts_all_failed_are_handed_over_those_with_most_failures_first():
    asked = []
    policy = on_all_fail(ba.uniform(), lambda ids: asked.append(ids), rollouts=4, share=0.5)
    step = policy.begin(["a", "b", "c", "d"], Budget(64))
    assert step.request().tolist() == [8, 8, 8, 8]
    nan = float("nan")
    rewards = {"a": [0] * 8, "b": [0] * 7 + [0.1], "c": [0] * 5 + [nan] * 3, "d": [0] * 3 + [nan] * 5}
    step.observe([x for x in rewards for _ in range(8)], [r for each in rewards.values() for r in each])
    assert step.request().tolist() == [3, 0, 3, 0]
    assert step.hinted
    assert asked == [["a", "c"]]


def test_all_but_one_rollout_of_each_helped_prompt_is_hinted_and_the_rest_of_the_reserve_returns():
    ids = list(range(16))
    rates = {k: float(k >= 3) for k in ids}
    plain, hinted = play(on_all_fail(ba.uniform(), everybody, share=0.25), ids, Budget(128), rates)
    assert hinted.sum(axis=0).tolist() == [7, 7, 7] + [0] * 13
    assert plain.sum() + hinted.sum() == 128
    last_P = plain[-1]
    assert last_P.sum() == 32 - 21
    assert (last_P[:3] == 1).all()


def test_hinted_rewards_reach_neither_the_belief_nor_the_memory():
    def learn(memory, seen):
        memory.columns["seen"][memory.rows(seen.ids_P)] += seen.n_P

    plain = Policy("plain", ba.uniform().decide, BetaEstimator(), memory=Memory({"seen": 0.0}, learn))
    policy = on_all_fail(plain, everybody, rollouts=4, unhinted=0, share=0.25)
    step = policy.begin(["a", "b"], Budget(32))
    step.request()
    step.observe(["a"] * 12 + ["b"] * 12, [0] * 12 + [1] * 12)
    assert step.request().tolist() == [4, 0]
    step.observe(["a"] * 4, [1] * 4, hinted=True)
    rest_P = step.request()
    assert not step.hinted
    assert rest_P.sum() == 4
    step.observe(np.repeat(["a", "b"], rest_P), np.zeros(4))
    step.end()
    assert policy.belief(["a"]).alpha_P == 0.5
    assert policy.belief(["a"]).beta_P == 12.5 + rest_P[0]
    assert policy.memory.recall(["a", "b"])["seen"].tolist() == [12 + rest_P[0], 12 + rest_P[1]]


def test_a_trainer_that_ignores_hints_is_stopped():
    step = on_all_fail(ba.uniform(), everybody, share=0.25).begin(["a", "b"], Budget(32))
    step.request()
    step.observe(["a"] * 12 + ["b"] * 12, [0] * 24)
    assert step.request().any()
    with pytest.raises(InputError, match="with hinted=True"):
        step.observe(["a"] * 7, [0] * 7)
    plain = ba.uniform().begin(["a"], Budget(8))
    plain.request()
    with pytest.raises(InputError, match="hinted=False"):
        plain.observe(["a"] * 8, [0] * 8, hinted=True)


def after_failures(hint):
    """A step in which all rollouts of a prompt have failed."""
    step = on_all_fail(ba.uniform(), hint, share=0.25).begin(["a"], Budget(16))
    step.request()
    step.observe(["a"] * 12, [0] * 12)
    return step


def test_a_hint_for_a_prompt_that_was_not_asked_about_is_refused():
    with pytest.raises(InputError, match="stranger"):
        after_failures(lambda ids: ["stranger"]).request()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_wrapped_policy_keeps_its_needs(method):
    plain = method.build(seed=3)
    policy = on_all_fail(plain, everybody)
    assert policy.name.startswith(f"on_all_fail({plain.name}")
    assert not policy.needs.keep_batch
    assert (policy.needs.candidates, policy.needs.generate) == (plain.needs.candidates, plain.needs.generate)
    assert policy.keep == plain.keep
