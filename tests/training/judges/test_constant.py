"""A reward function that stops to vary is found; healthy ones are not, whatever they are like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.training.judges.constant import ConstantScores


def run(steps_of_scores, group=1):
    """Adds steps of these scores, in groups of this size; returns the object and the steps after which it was dead."""
    scores, dead = ConstantScores(), []
    for step, scores_R in enumerate(steps_of_scores):
        scores.add(np.asarray(scores_R, dtype=float), np.arange(len(scores_R)) // group)
        if scores.stopped:
            dead.append(step)
    return scores, dead


@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_function_that_dies_is_dead_until_it_varies_again(group, value):
    rng = np.random.default_rng(0)
    alive = [rng.random(64 * group) < 0.4 for _ in range(20)]
    silent = [np.full(64 * group, value)] * 20
    scores, dead = run([*alive, *silent, *alive], group)
    assert 20 <= dead[0] <= 24
    assert dead == list(range(dead[0], 40))  # also when both windows are constant
    assert scores.varied


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["0/1", "graded", "rare", "constant", "solved", "unscored"]),
    st.floats(0.01, 0.99),
    st.integers(1, 8),
    st.integers(0, 10**6),
)
def test_healthy_functions_are_never_dead(kind, rate, group, seed):
    rng = np.random.default_rng(seed)

    def step(at):
        p_G = rng.beta(0.3, 0.3, size=48)  # prompts that nearly always pass or fail
        p_R = np.repeat(p_G, group)
        if kind == "graded":
            return rng.beta(2, 2, size=len(p_R))
        if kind == "rare":
            return rng.random(len(p_R)) < 0.02 * rate
        if kind == "constant":
            return np.full(len(p_R), rate)
        if kind == "solved":  # the rate of failures halves every ten steps, down to none
            return rng.random(len(p_R)) >= rate * 0.5 ** (at / 10)
        if kind == "unscored":
            return np.where(rng.random(len(p_R)) < 0.9, np.nan, rng.random(len(p_R)) < p_R)
        return rng.random(len(p_R)) < p_R

    scores, dead = run([step(at) for at in range(120)], group)
    assert dead == []
    assert scores.never_varied == (kind == "constant")


def test_nothing_is_known_of_a_function_that_returned_nothing():
    scores, dead = run([np.full(64, np.nan)] * 20)
    assert dead == []
    assert not scores.varied
    assert not scores.never_varied
