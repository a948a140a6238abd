"""Methods in rounds: who is continued, until when, and the bias of that."""

import itertools
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_steps import play

from budgetalloc import Budget
from budgetalloc.methods import ar3po, dapo, hora, pilot_commit, reinforce_ada, speed, vigor


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
    successes, total = np.array([sum(rewards[k]) for k in ids]), counts.sum(axis=0)
    assert ((total > 0) & (total < 8) & (successes == 0)).sum() <= 1
    assert (total[successes == 0] == 8).sum() > 50


def test_speed_continues_exactly_the_prompts_whose_screening_was_mixed():
    ids, rng = list(range(400)), np.random.default_rng(0)
    for seed in range(5):
        counts, rewards = play(speed(seed=seed), ids, Budget(1024, floor=0), rng.random(400).round(), rng)
        assert counts.sum() == 1024
        assert set(counts.sum(axis=0).tolist()) == {0, 4}  # rates of 0 and 1: nothing is mixed
        counts, rewards = play(speed(seed=seed), ids, Budget(1024, floor=0), rng.random(400), rng)
        assert counts.sum() == 1024
        mixed = [0 < sum(r[:4]) < 4 for r in rewards.values()]
        total = counts.sum(axis=0)
        odd = [x for x in ids if total[x] != (24 if mixed[x] else 4 * (total[x] > 0))]
        assert len(odd) <= 1  # the prompt at which the budget ends


def test_reinforce_ada_goes_on_until_both_quotas_are_met():
    ids = ["never", "half", "always"]
    rates = {"never": 0.0, "half": 0.5, "always": 1.0}
    counts, _ = play(reinforce_ada(group=8, stages=4, seed=0), ids, Budget(96, floor=2), rates)
    total = dict(zip(ids, counts.sum(axis=0).tolist(), strict=True))
    assert total["never"] == total["always"] == 32
    assert total["half"] in (8, 16, 24)


@pytest.mark.parametrize(("p", "cost"), [(0.5, 8.6), (0.25, 11.6), (0.1, 21.0)])
def test_reinforce_ada_costs_what_the_released_code_costs(p, cost):
    """Rollouts of a prompt, as the released function gave them: rounds of 8 until 2 successes and 2 failures."""
    ids = list(range(800))
    policy, rng = reinforce_ada(), np.random.default_rng(0)
    counts, _ = play(policy, ids, Budget(32 * 800, floor=2), [p] * 800, rng)
    assert counts.sum(axis=0).max() <= 32
    assert counts.sum() / 800 == pytest.approx(cost, abs=4 * np.std(counts.sum(axis=0)) / 800**0.5)
    assert policy.needs.generate == 8


def test_reinforce_ada_of_successes_stops_at_the_first_success():
    rates = {"never": 0.0, "half": 0.5, "always": 1.0}
    counts, _ = play(reinforce_ada(quota="positive", seed=0), list(rates), Budget(96, floor=2), rates)
    assert counts.sum(axis=0).tolist() == [32, 8, 8]  # one round of 8 at rate 1/2 has no success once in 256


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


def test_pilot_commit_commits_to_the_prompts_whose_pilots_varied():
    ids = list(range(64))
    rates = {k: [0.0, 0.5, 1.0, 0.5][k % 4] for k in ids}
    counts, _ = play(pilot_commit(pilot=4, group=16, seed=0), ids, Budget(256, floor=0), rates)
    assert counts.shape[0] == 2
    assert counts[0].sum() == 128
    assert set(counts[0].tolist()) == {0, 4}
    assert not counts[1][[k for k in ids if rates[k] != 0.5]].any()


@pytest.mark.parametrize("floor", [0, 2])
def test_vigor_grows_the_groups_of_the_largest_variance_twice(floor):
    """Computed: of 32 groups of 4, 16 grow to 8, and 8 of them to 16; every round costs 64 rollouts."""
    ids, rng = list(range(32)), np.random.default_rng(1)
    counts, rewards = play(vigor(), ids, Budget(256, floor=floor), rng.random(32), rng)
    assert [round_.sum() for round_ in counts] == [128, 64, 64]
    sizes = counts.cumsum(axis=0)
    for before, grown in ((4, counts[1] > 0), (8, counts[2] > 0)):
        variance = np.array([np.var(rewards[x][:before]) if sizes[-1][x] >= before else 0 for x in ids])
        asked = sizes[-1] >= before if before == 4 else counts[1] > 0
        assert variance[grown].min() >= variance[asked & ~grown].max()
    assert sorted(sizes[-1].tolist()) == [4] * 16 + [8] * 8 + [16] * 8


def piloted(passed, rollouts, pilot=4, **bounds):
    """The second round of a step in which the prompts passed so many of their pilots."""
    ids = list(range(len(passed)))
    step = hora(pilot=pilot).begin(ids, Budget(rollouts=rollouts, **bounds))
    assert step.request().tolist() == [pilot] * len(ids)
    step.observe(np.repeat(ids, pilot).tolist(), [float(k < s) for s in passed for k in range(pilot)])
    return step.request()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 14), st.integers(5, 12))
def test_the_second_round_is_the_exact_optimum(passed, left, cap):
    assume(4 * len(passed) + left <= cap * len(passed))

    def missed(m, s):  # E[(1-p)^m] under Beta(1 + s, 5 - s), by gamma functions
        f = 4 - s
        return math.exp(math.lgamma(f + 1 + m) - math.lgamma(f + 1) + math.lgamma(6) - math.lgamma(6 + m))

    more_P = piloted(passed, 4 * len(passed) + left, cap=cap)
    assert more_P.sum() == left
    splits = itertools.product(range(cap - 4 + 1), repeat=len(passed))
    least = min(sum(map(missed, c, passed)) for c in splits if sum(c) == left)
    assert sum(map(missed, more_P.tolist(), passed)) == pytest.approx(least, abs=1e-9)
