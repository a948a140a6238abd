"""SPO and SPO++ against the released algorithm, line by line, and offline rollouts that are given or paid for."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, simulate
from budgetalloc.methods.spo import spo, spo_pp
from budgetalloc.testing import Known

IDS = ["a", "b", "c", "d"]


def values(policy, ids):
    """The policy's baseline of one rollout of each prompt."""
    step = policy.begin(ids, Budget(rollouts=len(ids), floor=0, min_group=1))
    return step.expected_success(ids, [0] * len(ids))


def histories(most=12):
    """Steps, each with the prompts that are visited and their rewards."""
    visits = st.dictionaries(st.sampled_from(IDS), st.sampled_from([0.0, 1.0]), max_size=4)
    return st.lists(visits, max_size=most)


def released(history, alpha, beta, rho):
    """alpha and beta after the update of `spo_ray_trainer.py`, with the constant rho."""
    alpha, beta = dict(alpha), dict(beta)
    for visits in history:
        for x, r in visits.items():
            alpha[x] = rho * alpha[x] + r
            beta[x] = rho * beta[x] + (1 - r)
    return np.array([alpha[x] / (alpha[x] + beta[x]) for x in IDS])


@given(history=histories(), rho=st.sampled_from([0.0, 0.5, 0.875]))
@settings(max_examples=60, deadline=None)
def test_the_tracker_is_that_of_the_released_code(history, rho):
    policy = spo(rho=rho)
    for visits in history:
        policy.observe(list(visits), list(visits.values()))
    half = dict.fromkeys(IDS, 0.5)
    assert values(policy, IDS) == pytest.approx(released(history, half, half, rho))


@given(history=histories(), wins=st.lists(st.integers(0, 8), min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_offline_rollouts_start_it_with_a_jeffreys_smoothed_mean_of_mass_eight(history, wins):
    policy = spo(offline={x: (s, 8) for x, s in zip(IDS, wins, strict=True)})
    for visits in history:
        policy.observe(list(visits), list(visits.values()))
    alpha = {x: 8 * (s + 0.5) / 9 for x, s in zip(IDS, wins, strict=True)}
    beta = {x: 8 * (8 - s + 0.5) / 9 for x, s in zip(IDS, wins, strict=True)}
    assert values(policy, IDS) == pytest.approx(released(history, alpha, beta, 0.875))


@given(history=histories(), rho=st.sampled_from([0.5, 0.875]), wins=st.integers(0, 8) | st.none())
@settings(max_examples=60, deadline=None)
def test_spo_pp_is_its_sum_over_events(history, rho, wins):
    """alpha = rho^steps alpha_0 + the sum of rho^(steps since) R, by brute force (2608.24870)."""
    policy = spo_pp(rho=rho, offline=None if wins is None else dict.fromkeys(IDS, (wins, 8)))
    for visits in history:
        policy.observe(list(visits), list(visits.values()))
    start = (0.5, 0.5) if wins is None else ((wins + 0.5) / 9 / (1 - rho), (8.5 - wins) / 9 / (1 - rho))
    expected = []
    for x in IDS:
        both = np.array(start)
        for visits in history:
            if x in visits:
                both = both + np.array([visits[x], 1 - visits[x]])
            both = both * rho  # the update makes the next version
        expected.append(both[0] / both.sum())
    assert values(policy, IDS) == pytest.approx(np.array(expected), abs=1e-9)


def test_prompts_are_drawn_without_replacement_by_their_deviation():
    """The chance of each pair, from all orders of draws by hand."""
    offline = {"a": (4, 8), "b": (8, 8), "c": (1, 8)}
    weight = np.sqrt([0.25, 8.5 * 0.5 / 81, 1.5 * 7.5 / 81]) + 0.05
    chance = {}
    for i, j in itertools.permutations(range(3), 2):
        pair = frozenset("abc"[k] for k in (i, j))
        chance[pair] = chance.get(pair, 0) + weight[i] / weight.sum() * weight[j] / (weight.sum() - weight[i])
    drawn = Counter()
    for seed in range(1000):
        counts_P = spo(offline=offline, seed=seed).allocate(list("abc"), Budget(rollouts=2, floor=0, min_group=1))
        assert sorted(counts_P.tolist()) == [0, 1, 1]
        drawn[frozenset(x for x, n in zip("abc", counts_P, strict=True) if n)] += 1
    for pair, p in chance.items():
        assert drawn[pair] / 1000 == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / 1000))


@pytest.mark.parametrize("make", [spo, spo_pp])
def test_measuring_is_paid_for_and_trains_nothing(make):
    """Eight of each of 12 prompts are three steps of 32; only then are advantages other than 0."""
    seen = []

    class World(Known):
        def learn(self, advantages_R):
            seen.append(np.abs(advantages_R).max())
            super().learn(advantages_R)

    policy = make(offline=8)
    run = list(simulate(policy, World(np.linspace(0, 1, 12)), 32, 5, prompts=4))
    assert [x["rollouts"] for x in run] == [32, 64, 96, 128, 160]
    assert seen[:3] == [0, 0, 0]
    assert min(seen[3:]) > 0.1
    recall = policy.memory.recall(range(12))
    assert recall["offline_rollouts"].tolist() == [8.0] * 12
    assert np.corrcoef(recall["offline_successes"], np.arange(12))[0, 1] > 0.8
