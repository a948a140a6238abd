"""Success beside the reward: "mixed" asks for unequal rewards, "solved" and "failed" for success."""

import itertools

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import Budget
from budgetalloc.methods.table import METHODS

HARD = {"never": 0.0, "half": 0.5, "often": 0.75}


def total(success_R):
    """0.2 for the format, which every rollout has, and 0.8 for the answer."""
    return 0.2 + 0.8 * np.asarray(success_R)


def play(policy, ids_P, budget, success_of):
    """A step with rewards 0.2 + 0.8 success; `success_of` gives each prompt's successes in order. Counts by round."""
    step, rounds = policy.begin(ids_P, budget), []
    left = {x: itertools.cycle(success_of[x]) for x in ids_P}
    while (counts_P := step.request()).any():
        rounds.append((counts_P.tolist(), step.hinted))
        ids_R = np.repeat(ids_P, counts_P).tolist()
        success_R = [next(left[x]) for x in ids_R]
        step.observe(ids_R, total(success_R), success_R, hinted=step.hinted)
    step.end()
    return rounds


# --- the methods that ask for it ---


def test_dapo_resamples_where_rewards_of_a_format_are_all_that_was_earned():
    ids_P = [f"p{k}" for k in range(12)]
    rounds = play(ba.methods.dapo(group=4, generate=3, seed=0), ids_P, Budget(48, floor=0), {x: [0] for x in ids_P})
    assert len(rounds) == 3  # it was 1: a constant 0.2 counted as mixed


def test_greso_counts_visits_of_equal_rewards_whatever_they_are():
    policy = ba.methods.greso(seed=0)
    for success in (0, 1, 1):
        policy.observe(["x"] * 4, total([success] * 4), [success] * 4)
        assert policy.memory.recall(["x"])["easy"].tolist() == [success]
    assert policy.memory.recall(["x"])["run"].tolist() == [2]
    policy.observe(["x"] * 4, [0.0, 0.2, 0.2, 0.0], [0] * 4)  # the format varies: there is a gradient
    assert policy.memory.recall(["x"])["run"].tolist() == [0]
    graded = ba.methods.greso(seed=0)
    graded.observe(["y"] * 4, [0.5] * 4)
    assert graded.memory.recall(["y"])["run"].tolist() == [1]


def test_sec_and_depo_learn_the_advantages_of_the_rewards():
    sec = ba.methods.sec(domain_of=lambda prompt: prompt, rate=1.0)
    sec.observe(["a"] * 4 + ["b"] * 4, [0.2] * 4 + [0.2, 1.0, 0.2, 1.0], [0] * 4 + [0, 1, 0, 1])
    assert sec.memory.numbers == {"q:a": 0.0, "q:b": 1.0}
    depo = ba.methods.depo(window=1)
    depo.observe(["a"] * 4 + ["b"] * 4, [0.2] * 4 + [0.2, 1.0, 0.2, 1.0])
    assert depo.memory.recall(["a", "b"])["recent"].tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("make", [ba.methods.reinforce_ada, ba.methods.roc], ids=lambda make: make.__name__)
def test_what_is_kept_is_balanced_by_success(make):
    """Four rows of each prompt; rewards of -1 and -0.5 are successes here, -2 and 0.7 are not."""
    rewards_R, success_R = np.array([-2, -2, 0.7, 0.7, -1, -0.5, -1, -1]), np.array([0.0, 0, 0, 0, 1, 1, 1, 1])
    kept_R = make(seed=0).keep(["a"] * 8, rewards_R, 4, None, success_R)
    assert success_R[kept_R].sum() == 2


def test_every_method_takes_success_beside_rewards_on_any_scale():
    """Rewards -7 + 12 success with success given, and success as the reward, give equal counts, for every method."""
    ids_P = [f"{x} {k}" for x in HARD for k in range(4)]
    for method in METHODS:
        one, other = method.build(seed=0), method.build(seed=0)
        for at in range(4):
            rng = np.random.default_rng(at)
            steps = [policy.begin(ids_P, Budget(48)) for policy in (one, other)]
            while True:
                counts = [step.request() for step in steps]
                assert (counts[0] == counts[1]).all(), method.name
                if not counts[0].any():
                    break
                ids_R = np.repeat(ids_P, counts[0]).tolist()
                success_R = (rng.random(len(ids_R)) < [HARD[x.split()[0]] for x in ids_R]).astype(float)
                steps[0].observe(ids_R, success_R, hinted=steps[0].hinted)
                steps[1].observe(ids_R, 12 * success_R - 7, success_R, hinted=steps[1].hinted)
            for step in steps:
                step.end()
