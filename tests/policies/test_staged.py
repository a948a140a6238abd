"""Policies that decide in rounds: the budget, group sizes, stop rules, and who is continued."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Budget, BudgetError, InputError, Policy, UnsupportedError
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.policies import ar3po, dapo, pilot_commit, reinforce_ada
from budgetalloc.policies.rounds import Rollouts

STAGED = {
    "ar3po": ar3po,
    "ar3po in 4": lambda **kw: ar3po(stages=4, **kw),
    "pilot_commit": pilot_commit,
    "reinforce_ada": reinforce_ada,
    "reinforce_ada of successes": lambda **kw: reinforce_ada(quota="positive", stages=3, **kw),
    "dapo": dapo,
    "thompson dapo": lambda **kw: dapo(order="thompson", **kw),
}
SPENDS_ALL = {"ar3po", "ar3po in 4", "pilot_commit"}
each_policy = pytest.mark.parametrize("name", STAGED)


def play(policy, ids, budget, rates, seed=0):
    """One step against prompts of known rates: the counts of each round, and the rewards."""
    rng = np.random.default_rng(seed)
    step = policy.begin(ids, budget)
    counts, rewards = [], []
    while (counts_P := step.request()).any():
        ids_R = [x for x, n in zip(ids, counts_P.tolist(), strict=True) for _ in range(n)]
        rewards_R = (rng.random(len(ids_R)) < np.array([rates[x] for x in ids_R])).astype(float)
        step.observe(ids_R, rewards_R)
        counts.append(counts_P)
        rewards.append(rewards_R)
    step.end()
    return np.array(counts).reshape(-1, len(ids)), rewards


@each_policy
@given(
    prompts=st.integers(1, 13),
    units=st.integers(1, 60),
    floor=st.integers(0, 3),
    cap=st.none() | st.integers(1, 24),
    quantum=st.sampled_from([1, 2, 3]),
    min_group=st.integers(1, 5),
    seed=st.integers(0, 9),
)
@settings(max_examples=50, deadline=None)
def test_every_round_keeps_the_budget_and_the_group_sizes(name, prompts, units, floor, cap, quantum, min_group, seed):
    try:
        budget = Budget(units * quantum, floor=floor, cap=cap, quantum=quantum, min_group=min(min_group, floor or 9))
        budget.check(prompts)
    except BudgetError:
        assume(False)
    ids = list(range(prompts))
    rates = np.random.default_rng(seed).choice([0.0, 0.1, 0.5, 1.0], prompts)
    counts, _ = play(STAGED[name](seed=seed), ids, budget, rates, seed)
    total = counts.sum(axis=0)
    assert counts.sum() == budget.rollouts if name in SPENDS_ALL else 0 < counts.sum() <= budget.rollouts
    assert set(total.tolist()) <= {0, *budget.grid().tolist()}
    if floor:
        assert (total >= floor).all()


@each_policy
def test_the_same_history_gives_the_same_rounds_in_any_order_of_ids(name):
    ids = [f"prompt {k}" for k in range(40)]
    rates = {x: k / 40 for k, x in enumerate(ids)}
    budget = Budget(64, floor=0)
    first, _ = play(STAGED[name](seed=3), ids, budget, dict.fromkeys(ids, 1.0))
    other, _ = play(STAGED[name](seed=3), ids[::-1], budget, dict.fromkeys(ids, 1.0))
    assert np.array_equal(first, other[:, ::-1])
    assert rates  # rates of 1 make the rewards independent of the order in which rows are drawn


def test_ar3po_stops_at_the_first_success_and_continues_the_rest():
    ids = list(range(100))
    rates = {k: float(k % 2) for k in ids}  # odd ones always pass
    counts, _ = play(ar3po(group=8, stages=2, seed=0), ids, Budget(256, floor=0), rates)
    total = counts.sum(axis=0)
    assert set(total[1::2].tolist()) <= {0, 4}
    assert set(total[::2].tolist()) <= {0, 4, 8}
    assert (total[::2] == 8).sum() >= 12


@pytest.mark.parametrize(("p", "k"), [(0.05, 1), (0.2, 2), (0.7, 3)])
def test_ar3po_mean_of_a_group_is_biased_upwards_by_as_much_as_its_docstring_says(p, k):
    """Exact: all rewards that a prompt may see in two stages of k, each with its probability."""
    expected, mass = 0.0, 0.0
    for rewards in product([0, 1], repeat=2 * k):
        step = ar3po(group=2 * k, stages=2, seed=0).begin(["a", "b"], Budget(2 * k, floor=0, min_group=1))
        first = step.ids_P[int(step.request().argmax())]
        step.observe([first] * k, rewards[:k])
        goes_on = step.request()[step.ids_P.index(first)] > 0
        assert goes_on == (not any(rewards[:k]))
        own = rewards if goes_on else rewards[:k]
        chance = p ** sum(rewards) * (1 - p) ** (2 * k - sum(rewards))
        expected, mass = expected + chance * np.mean(own), mass + chance
    assert mass == pytest.approx(1, abs=1e-12)
    assert expected == pytest.approx(p + (1 - p) ** k * p / 2, abs=1e-12)
    assert expected > p


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_ar3po_leaves_at_most_the_last_prompt_half_way(stages):
    ids = list(range(400))
    rates = dict(zip(ids, np.random.default_rng(1).choice([0.0, 0.1, 0.5, 1.0], 400).tolist(), strict=True))
    counts, rewards = play(ar3po(stages=stages, seed=0), ids, Budget(1000, floor=0), rates)
    successes = np.zeros(400)
    for counts_P, rewards_R in zip(counts, rewards, strict=True):
        np.add.at(successes, np.repeat(np.arange(400), counts_P), rewards_R)
    total = counts.sum(axis=0)
    assert ((total > 0) & (total < 8) & (successes == 0)).sum() <= 1
    assert (total[successes == 0] == 8).sum() > 50


def test_pilot_commit_commits_to_the_prompts_whose_pilots_varied():
    ids = list(range(64))
    rates = {k: [0.0, 0.5, 1.0, 0.5][k % 4] for k in ids}
    counts, _ = play(pilot_commit(pilot=4, group=16, seed=0), ids, Budget(256, floor=0), rates)
    assert counts.shape[0] == 2
    assert counts[0].sum() == 128
    assert set(counts[0].tolist()) == {0, 4}
    assert not counts[1][[k for k in ids if rates[k] != 0.5]].any()


def test_reinforce_ada_goes_on_until_both_quotas_are_met():
    ids = ["never", "half", "always"]
    rates = {"never": 0.0, "half": 0.5, "always": 1.0}
    counts, _ = play(reinforce_ada(group=8, stages=4, seed=0), ids, Budget(96, floor=2), rates)
    total = dict(zip(ids, counts.sum(axis=0).tolist(), strict=True))
    assert total["never"] == total["always"] == 32
    assert total["half"] in (8, 16, 24)


def test_reinforce_ada_of_successes_stops_at_the_first_success():
    rates = {"never": 0.0, "half": 0.5, "always": 1.0}
    counts, _ = play(reinforce_ada(quota="positive", seed=0), list(rates), Budget(96, floor=2), rates)
    assert counts.sum(axis=0).tolist() == [32, 8, 8]  # one round of 8 at rate 1/2 has no success once in 256


@pytest.mark.parametrize("make", [reinforce_ada, dapo])
@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_few_prompts_still_fill_what_a_trainer_trains_on(make, rate):
    policy = make(group=4, seed=0)
    limit = 60 * policy.needs.generate
    counts, _ = play(policy, ["a", "b", "c"], Budget(limit, floor=0), dict.fromkeys("abc", rate))
    assert 60 <= counts.sum() <= limit


def test_dapo_stops_when_the_mixed_groups_fill_the_batch_and_never_before():
    ids = list(range(200))
    graded, _ = play(dapo(seed=0), ids, Budget(768, floor=0), dict.fromkeys(ids, 0.5))
    assert graded.shape[0] <= 2
    hopeless, _ = play(dapo(seed=0), ids, Budget(768, floor=0), dict.fromkeys(ids, 0.0))
    assert hopeless.shape[0] == 3
    assert hopeless.sum() == 768
    assert hopeless.sum(axis=0).max() == 8  # always new prompts


def test_thompson_dapo_tries_promising_prompts_first():
    policy = dapo(order="thompson", generate=2, discount=1.0, idle=1.0, seed=0)
    for _ in range(20):
        policy.observe(["solved"] * 8 + ["third"] * 9, [1] * 8 + [1, 0, 0] * 3)
    first = policy.begin(["solved", "third"], Budget(16, floor=0)).request()
    assert first.tolist() == [0, 8]


def test_nothing_is_handed_out_that_leaves_a_rest_which_is_no_group():
    given = Rollouts(Budget(12, floor=0, cap=5, min_group=4), prompts=4)  # only 4 + 4 + 4 will do
    assert [given.give(at, 5) for at in range(3)] == [4, 4, 4]
    assert given.left == 0


@given(
    units=st.integers(1, 60),
    floor=st.sampled_from([0, 2]),
    cap=st.none() | st.integers(1, 24),
    quantum=st.sampled_from([1, 2, 3]),
    min_group=st.integers(1, 5),
    gifts=st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), unique_by=lambda x: x[0]), max_size=4),
    order=st.permutations(range(13)),
)
@settings(max_examples=50, deadline=None)
def test_many_gifts_at_once_are_those_given_one_by_one(units, floor, cap, quantum, min_group, gifts, order):
    try:
        budget = Budget(units * quantum, floor=floor, cap=cap, quantum=quantum, min_group=min(min_group, floor or 9))
        budget.check(13)
    except BudgetError:
        assume(False)
    at_once, single = Rollouts(budget, 13), Rollouts(budget, 13)
    for gift in gifts:
        at_once.give_each([at for at, _ in gift], [wanted for _, wanted in gift])
        for at, wanted in gift:
            single.give(at, wanted)
        assert at_once.counts_P.tolist() == single.counts_P.tolist()
        assert at_once.left == single.left
    resumed = Rollouts(budget, 13, at_once.counts_P)
    for given_ in (at_once, resumed):
        given_.spread(np.array(order))
    while single.left:
        for at in order:
            single.give(at, quantum)
    assert at_once.counts_P.tolist() == resumed.counts_P.tolist() == single.counts_P.tolist()
    assert at_once.left == 0


def test_what_is_to_be_kept_is_kept():
    given = Rollouts(Budget(100, floor=0), prompts=4)
    given.give_each([0, 1, 2], 10)
    given.spread(np.array([2, 0]), keep=35)
    assert given.counts_P.tolist() == [27, 10, 28, 0]
    assert given.left == 35


def test_a_rule_that_asks_for_more_than_the_budget_is_stopped():
    def greedy(view):
        while True:
            yield np.full(len(view.belief_P), 4)

    policy = Policy("greedy one", greedy, BetaEstimator())
    step = policy.begin(["a", "b"], Budget(10, floor=0))
    assert step.request().tolist() == [4, 4]
    with pytest.raises(BudgetError, match="ask for 16 rollouts"):
        step.request()


def test_rounds_need_a_budget_in_rollouts():
    with pytest.raises(UnsupportedError, match="spends rollouts only"):
        ar3po().begin(["a"], Budget(None, tokens=100, cap=8), costs_P=[1.0]).request()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ar3po(group=0), "group=0"),
        (lambda: ar3po(stages=9), "stages=9"),
        (lambda: pilot_commit(pilot=1), "pilot=1"),
        (lambda: pilot_commit(share=1.0), "share=1.0"),
        (lambda: reinforce_ada(stages=0), "stages=0"),
        (lambda: reinforce_ada(quota="any"), "quota='any'"),
        (lambda: dapo(generate=0), "generate=0"),
        (lambda: dapo(order="best"), "order='best'"),
        (lambda: ba.policies.cures(fewest=9), "fewest=9"),
        (lambda: ba.policies.cures(temperature=0), "temperature=0"),
        (lambda: ba.policies.vade(group=2.5), "group=2.5"),
    ],
)
def test_a_bad_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
