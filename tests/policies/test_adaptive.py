"""Sampling in proportion to a weight: how often prompts are drawn, and the settings of the recommended policy."""

import itertools
import math

import numpy as np
import pytest
from budgets import budgets
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_steps import play

import budgetalloc as ba
from budgetalloc import Budget, Features
from budgetalloc.policies import growing, retrying, sampled
from budgetalloc.policies.adaptive import first_groups, uniform_groups


def met(policy, rates, steps=60, rollouts=64):
    """How often each prompt was rolled out, with rewards at the given rates."""
    rng = np.random.default_rng(0)
    total = np.zeros(len(rates))
    for _ in range(steps):
        counts_P = policy.allocate(range(len(rates)), Budget(rollouts, floor=0, min_group=1))
        ids_R = np.repeat(np.arange(len(rates)), counts_P)
        policy.observe(ids_R, (rng.random(len(ids_R)) < np.array(rates)[ids_R]).astype(float))
        total += counts_P
    return total


def test_nobody_is_starved_and_the_mastered_are_met_least():
    rates = np.repeat([0.0, 0.1, 0.4, 0.8, 1.0], 100)
    total = met(sampled(seed=1), rates).reshape(5, 100)
    assert (total > 0).mean() > 0.95
    never, rare, some, often, always = total.mean(axis=1)
    assert some > often > always
    assert rare > never > 0
    assert some > 2 * always


def test_counts_follow_the_root_of_the_value_where_the_rates_are_known():
    policy = sampled(power=(1, 1), draw=False, discount=1.0, idle=1.0, seed=0)
    policy.observe(np.repeat([0, 1], 4000), np.r_[np.tile([0, 1], 2000), np.tile([0, 0, 0, 0, 1], 800)])
    counts = policy.allocate([0, 1], Budget(900, floor=0, min_group=1))
    assert counts.tolist() == [500, 400]  # sqrt(0.25) : sqrt(0.16)


def expected_gradient(rates, counts, policy, scale, weight="rollout"):
    """E[mean over rollouts of advantage * d log pi / d logit] of each prompt, exactly: a sum over all outcomes.

    Each prompt has two answers, right and wrong, and a logit of its own.
    """
    ids_R = np.repeat(np.arange(len(rates)), counts)
    rate_R, belief_R = np.array(rates)[ids_R], policy.belief(ids_R)
    total = np.zeros(len(rates))
    for outcome in itertools.product([0.0, 1.0], repeat=len(ids_R)):
        rewards_R = np.array(outcome)
        advantages_R = ba.group_advantages(rewards_R, ids_R, "posterior", scale, weight, belief_R=belief_R)
        chance = np.where(rewards_R == 1, rate_R, 1 - rate_R).prod()
        total += chance * np.bincount(ids_R, advantages_R * (rewards_R - rate_R)) / len(ids_R)
    return total


def test_the_expected_gradient_is_that_of_a_weighted_mean_of_success():
    """At 1/9 and 4/9 the weights sqrt(p (1-p)^2) are 8/27 and 10/27, so that 9 rollouts are 4 and 5, without a rest."""
    rates = np.array([1 / 9, 4 / 9])
    policy = sampled(draw=False, groups=2, idle=1.0, seed=0)
    policy.observe(
        np.repeat([0, 1], 90_000), np.r_[np.tile(np.eye(9)[0], 10_000), np.tile([1, 1, 1, 1] + [0] * 5, 10_000)]
    )
    counts = policy.allocate([0, 1], Budget(9, floor=0, min_group=1))
    assert counts.tolist() == [4, 5]
    of_success = rates * (1 - rates)  # d p / d logit: the gradient of mean success, but for a factor

    def weights(scale, weight="rollout"):
        weights_P = expected_gradient(rates, counts, policy, scale, weight) / of_success
        return weights_P / weights_P.sum()

    drawn = np.sqrt(rates) * (1 - rates)
    assert weights("none") == pytest.approx(drawn / drawn.sum(), rel=1e-3)
    scaled = np.sqrt(1 - rates)  # divided by the deviation sqrt(p (1-p)), as adaptive() does
    assert weights("group") == pytest.approx(scaled / scaled.sum(), rel=1e-3)
    assert weights("none", "prompt") == pytest.approx([0.5, 0.5], rel=1e-3)  # both prompts are in the step
    assert abs(weights("group") - 0.5).max() > 0.05


@pytest.mark.parametrize(
    ("prompts", "group"), [(40, 2), (64 * 20, 2), (64 * 45, 2), (64 * 46, 3), (64 * 63, 4), (64 * 300, 4)]
)
def test_prompts_without_history_get_groups_of_the_size_of_their_pool(prompts, group):
    """0.98 ** 45 is 0.403, 0.98 ** 46 is 0.395, 0.98 ** 63 is 0.280."""
    counts_P = ba.adaptive().allocate(range(prompts), Budget(64, floor=0, cap=64, min_group=1))
    assert counts_P.sum() == 64
    assert counts_P[counts_P > 0].min() >= group
    if prompts > 64:
        assert counts_P.max() == group + (64 % group > 0)  # one group takes the rest


def test_a_prompt_with_history_gets_single_rollouts_and_a_forgotten_one_a_group_again():
    policy, budget = ba.adaptive(), Budget(64, floor=0, cap=8, min_group=1)
    known, new = [f"known {k}" for k in range(100)], [f"new {k}" for k in range(100)]
    policy.observe([x for x in known for _ in range(4)], [0, 1, 0, 1] * 100)
    counts_P = policy.allocate([*known, *new], budget)
    assert set(counts_P[:100]) == {0, 1}
    assert set(counts_P[100:]) == {0, 2}
    for _ in range(100):  # 4 * 0.98 ** 100 rollouts are left, 0.53
        policy.observe([], [])
    counts_P = policy.allocate([*known, *new], budget)
    assert counts_P[counts_P > 0].min() >= 2


@given(
    st.lists(st.floats(0.01, 5), min_size=1, max_size=20), st.integers(1, 10**6), st.floats(0.5, 1), st.integers(1, 4)
)
def test_the_better_a_prompt_is_known_the_smaller_its_first_group(masses, prompts, idle, least):
    mass_P = np.sort(masses)
    groups_P = first_groups(mass_P, prompts, 64, idle, least)
    assert (np.diff(groups_P) <= 0).all()
    assert (groups_P[mass_P >= 1.6] == 1).all()
    assert ((least <= groups_P) & (groups_P <= 4))[mass_P < 1.6].all()


def test_the_number_of_rollouts_of_each_kind_follows_the_weights():
    policy = sampled(power=(0, 0), groups=2, seed=3)
    policy.observe([f"known {k}" for k in range(60)] * 2, [0, 1] * 60)
    ids = [f"known {k}" for k in range(60)] + [f"new {k}" for k in range(20)]
    alone = []
    for _ in range(40):
        counts_P = policy.allocate(ids, Budget(30, floor=0, min_group=1))
        assert counts_P.sum() == 30
        alone.append(counts_P[60:].sum())
        policy.estimator.step += 1  # other random numbers
    assert np.mean(alone) == pytest.approx(30 * 20 / 80, abs=1.0)


def test_the_settings_that_the_benchmark_measured():
    settings = "power=(1, 2), draw=True, prior=(0.3, 0.3), discount=1.0, idle=0.98, groups=0"
    assert sampled().name == f"sampled({settings}, unsolved=0.0, explore=0.0, seed=0)"
    estimator = ba.adaptive().estimator
    assert (estimator.prior, estimator.discount, estimator.idle) == ((0.3, 0.3), 0.96, 0.98)
    budget = Budget(64, floor=0, min_group=1)
    for options, name in (({}, "adaptive(seed=2)"), ({"explore": 0.3}, "adaptive(explore=0.3, seed=2)")):
        policy, same = ba.adaptive(seed=2, **options), sampled(groups=2, seed=2, **{"explore": 1.0} | options)
        assert policy.allocate(range(99), budget).tolist() == same.allocate(range(99), budget).tolist()
        assert policy.name == name


def test_prompts_that_are_believed_certain_get_what_a_cap_leaves():
    """Of weights of 1e-9 and more, so that no weight is 0 or negative."""
    policy = sampled(power=(16, 16), draw=False)
    policy.observe(np.repeat([0, 1], 1000), np.repeat([0.0, 1.0], 1000))
    assert policy.allocate([0, 1], Budget(8, floor=0, min_group=1)).tolist() == [4, 4]


@pytest.mark.parametrize(("explore", "least"), [(0.0, 0), (0.5, 20), (1.0, 40)])
def test_explore_gives_its_share_of_the_rollouts_evenly(explore, least):
    """To prompts that are believed mastered or hopeless as well: 160 rollouts of 4 prompts, 2 of them such."""
    policy = sampled(draw=False, explore=explore)
    policy.observe(np.repeat([0, 1, 2, 3], 1000), np.r_[np.zeros(1000), np.ones(1000), np.tile([0.0, 1.0], 1000)])
    counts_P = policy.allocate(range(4), Budget(160, floor=0, min_group=1))
    assert counts_P.sum() == 160
    assert least <= counts_P[1] <= least + 3  # the mastered one
    assert counts_P[0] <= counts_P[2] if explore < 1 else set(counts_P) == {40}


def test_with_rounds_failed_groups_grow_in_the_step_and_without_in_the_next():
    """The draws are those of the parts, with and without features; alike only in one round without them."""
    features, budget = Features(range(6), [[float(x % 2)] for x in range(6)]), Budget(24, floor=0, min_group=1)
    learned = {"estimator": ba.TrackingEstimator(features), "unsolved": 0.5}
    alike = retrying(sampled(groups=2, seed=2, explore=1.0, discount=0.96))
    for options, once, parts in (
        ({}, alike, {}),
        ({"features": features}, sampled(groups=2, seed=2, **learned), learned),
    ):
        found = []
        for each in (ba.adaptive(rounds=3, seed=2, **options), growing(sampled(groups=2, seed=2, **parts), rounds=3)):
            counts_NP, _ = play(each, range(6), budget, dict.fromkeys(range(6), 0.3))
            found.append(counts_NP.tolist())
        assert found[0] == found[1]
        assert 1 < len(found[0]) <= 3
        for each in (ba.adaptive(seed=2, **options), once):
            each.observe([0, 0, 1, 1], [0, 1, 0, 0])
            found.append(each.allocate(range(6), budget).tolist())
        assert found[2] == found[3]
        assert options or found[2][1] == 2  # two rollouts failed
    late = ba.adaptive(rounds=3, seed=2).with_features(features)
    assert play(late, range(6), budget, dict.fromkeys(range(6), 0.3))[0].tolist() == found[0]
    assert late.name == ba.adaptive(rounds=3, seed=2, features=features).name
    assert ba.adaptive(rounds=1).name == "adaptive(seed=0)"


def test_a_prompt_met_at_every_step_is_forgotten():
    """After 400 visits 25 of them count, and twenty others change its mind."""
    policy = ba.adaptive()
    for _ in range(400):
        policy.observe(["a"], [0.0])
    assert policy.belief(["a"]).mass[0] < 26
    for _ in range(20):
        policy.observe(["a"], [1.0])
    assert policy.belief(["a"]).mean[0] > 0.5


def test_all_rollouts_of_new_prompts_and_a_share_of_the_others_follow_the_failure_rate():
    """1 - p is about 1, 0.5 and 0 for visited prompts, and 0.5 under the prior; sqrt(p) (1-p) is 0, 0.35 and 0."""
    policy = sampled(draw=False, unsolved=0.5)
    policy.observe(np.repeat([0, 1, 2], 2000), np.r_[np.zeros(2000), np.tile([0.0, 1.0], 1000), np.ones(2000)])
    counts_P = policy.allocate(range(4), Budget(400, floor=0, min_group=1))
    prior = math.sqrt(0.3 * 1.3 / (0.6 * 1.6))  # sqrt(E[(1-p)^2])
    expected_P = np.array([0.5, 0.25 + 0.75, 0.0, prior]) * 400 / (1.5 + prior)
    assert counts_P == pytest.approx(expected_P, rel=0.1, abs=3)


def test_features_make_half_of_the_draws_follow_the_failure_rate():
    features = ba.Features(range(9), np.eye(9))
    policy = ba.adaptive(features=features, seed=1)
    same = sampled(groups=2, estimator=ba.TrackingEstimator(features), unsolved=0.5, seed=1)
    assert policy.needs == same.needs
    budget = Budget(64, floor=0, min_group=1)
    for each in (policy, same):
        each.observe(range(5), [0, 1, 0, 1, 1])
    assert policy.allocate(range(9), budget).tolist() == same.allocate(range(9), budget).tolist()
    assert policy.name == f"adaptive(features={features}, seed=1)"


# --- uniform groups in place of the policy's own rule ---


@given(budget=budgets(9), size=st.integers(1, 20))
@settings(max_examples=150, deadline=None)
def test_every_budget_is_spent_within_its_bounds(budget, size):
    counts_P = ba.adaptive().begin(range(9), budget, decide=uniform_groups(size)).request()
    assert counts_P.sum() == budget.rollouts
    assert np.isin(counts_P, budget.grid()).all()


@given(size=st.sampled_from([4, 8, 16]), low=st.integers(0, 12), room=st.integers(0, 12), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_quotas_that_no_groups_of_this_size_can_spend_get_smaller_groups(size, low, room, seed):
    budget = ba.Budget(64, floor=0, min_group=1, quotas={"a": (low, low + room)})
    domains_P = np.array(["a"] * 10 + ["b"] * 40)
    step = ba.adaptive(seed=seed).begin(range(50), budget, domains_P=domains_P, decide=uniform_groups(size))
    counts_P = step.request()
    assert counts_P.sum() == 64
    assert low <= counts_P[domains_P == "a"].sum() <= low + room


def test_with_a_floor_all_prompts_get_equal_counts():
    budget = ba.Budget(64, floor=2)  # as with candidates=1
    assert ba.adaptive().begin(range(8), budget, decide=uniform_groups(8)).request().tolist() == [8] * 8


@pytest.mark.parametrize("size", [2, 8])
def test_without_a_floor_groups_have_the_size(size):
    budget = ba.Budget(64, floor=0, min_group=1)
    counts_P = ba.adaptive().begin(range(100), budget, decide=uniform_groups(size)).request()
    assert sorted(counts_P.tolist())[-64 // size :] == [size] * (64 // size)


def test_prompts_drawn_alike_are_still_weighed_by_their_costs():
    """Costs of 1 and 16: weights of 4 to 1."""
    policy, counts = sampled(explore=1), np.zeros(40)

    def costs(ids_P, belief_P):
        return np.zeros(len(ids_P)), np.where(np.array(list(ids_P)) < 20, 1.0, 16.0)

    for step in range(50):
        counts += policy.begin(range(40), ba.Budget(rollouts=10, floor=0, min_group=1), costs).request()
        policy.observe([step % 40], [0.5])
    assert counts[:20].sum() / counts[20:].sum() == pytest.approx(4, rel=0.15)


def test_a_budget_of_tokens_draws_all_prompts_alike_too():
    policy, ids, seen = sampled(explore=1), list(range(30)), np.zeros(30)
    for step in range(60):
        seen += policy.allocate(ids, ba.Budget(None, tokens=60, floor=0, min_group=1, cap=4), [10.0] * 30) > 0
        policy.observe([step % 30], [0.5])
    assert seen.min() > 0
    assert seen.max() < 4 * seen.mean()


@pytest.mark.parametrize("rollouts", [1, 2, 3, 4, 8])
def test_new_prompts_are_met_however_few_rollouts_a_step_has(rollouts):
    policy, ids, met = ba.adaptive(), list(range(500)), set()
    for _ in range(40):
        counts_P = policy.allocate(ids, ba.Budget(rollouts, floor=0, min_group=1))
        assert counts_P.sum() == rollouts
        drawn = np.repeat(ids, counts_P).tolist()
        met |= set(drawn)
        policy.observe(drawn, [1] * rollouts)
    assert len(met) >= 35
