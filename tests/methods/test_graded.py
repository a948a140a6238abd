"""Graded success: rules with p(1-p) use the variance of the success; with successes of 0 and 1 nothing changes."""

import itertools

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc.methods.table import METHODS

VARIANCE = {"knapsack", "thompson", "sampled", "knapsack_rl", "coba_rl", "cero", "vip", "mopps", "cures"}
VARIANCE |= {"vade", "pilot_commit", "xrpo", "vigor"}
UNEQUAL = {"greso", "dump", "sec", "depo", "speed", "dapo", "pac"}  # rules about unequal rewards, on any scale
OTHER = {"uniform", "brorl", "pods", "shuffle_r1", "roc", "keep_mixed", "top_p", "cppo", "d3s"}
OTHER |= {"reinforce_pp", "ebpo", "a_star_po", "adaptive"}  # equal counts, but for retries of what failed
FAILED, MASTERED, HALF = [0.0], [1.0], [0.0, 1.0]


def rollouts(make, graded, seeds=6):
    """Rollouts of a step for each of four kinds of prompts, summed over seeds, after 48 rewards of each prompt."""
    outcomes = {"failed": FAILED, "mastered": MASTERED, "half": HALF, "graded": graded}
    ids, total = [f"{kind} {k}" for kind in outcomes for k in range(4)], dict.fromkeys(outcomes, 0)
    for seed in range(seeds):
        policy, next_of = make(seed=seed), {x: itertools.cycle(outcomes[x.split()[0]]) for x in ids}
        for _ in range(3):
            ids_R = [x for x in ids for _ in range(16)]
            policy.observe(ids_R, [next(next_of[x]) for x in ids_R])
        needs = policy.needs
        step = policy.begin(ids, ba.Budget(64 * needs.generate, floor=0, min_group=needs.min_group))
        while (counts_P := step.request()).any():
            ids_R = np.repeat(ids, counts_P).tolist()
            for x in ids_R:
                total[x.split()[0]] += 1
            step.observe(ids_R, [next(next_of[x]) for x in ids_R])
        step.end()
    return total


def test_every_method_says_what_graded_success_is_to_it():
    """Each is of variance, of unequal rewards, of no rewards, or of rates, and then its docstring says so."""
    rates = {method.name: method.build for method in METHODS if method.of_rates}
    assert sorted(method.name for method in METHODS) == sorted([*VARIANCE, *UNEQUAL, *OTHER, *rates])


@pytest.mark.parametrize("graded", [[0.5], [0.49, 0.51]], ids=["always 0.5", "0.49 and 0.51"])
@pytest.mark.parametrize("name", sorted(VARIANCE))
def test_a_prompt_of_almost_constant_success_gets_no_more_than_a_mastered_or_failed_one(name, graded):
    make = next(method.build for method in METHODS if method.name == name)
    total = rollouts(make, graded)
    assert total["graded"] < 0.8 * total["half"]
    if not (name == "pilot_commit" and len(graded) > 1):  # it fills groups of unequal rewards before all others
        # A prior counts as a success and a failure, for the belief about any of the three.
        assert total["graded"] <= 1.25 * max(total["mastered"], total["failed"])
