"""A learned range of rewards that changes: what a method remembers of success is rescaled with the beliefs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.methods.table import METHODS

REMEMBERING = {method.name: method.build for method in METHODS if method.build(seed=0).memory is not None}
# What no new scale of successes that are past can give: cero's price was moved by the slopes of its time, and GRESO's
# groups of equal rewards were told to be easy or hard by theirs; AdaRFT's target was moved by the means of its steps.
LEFT = {"cero": {"price"}, "greso": {"easy", "hard"}, "adarft": {"target"}}
success = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
VISITS = st.lists(st.lists(success, min_size=2, max_size=5), min_size=1, max_size=3)  # at most 16


def memory_of(make, steps, scale=1.0, shift=0.0):
    """A policy that learned these rows, whose rewards are on a scale of their own."""
    policy = make(seed=0)
    for rows in steps:
        u = np.array([u for _, u in rows])
        policy.observe([x for x, _ in rows], 4 * u - 1, np.clip(scale * u + shift, 0, 1))
    return policy


@pytest.mark.parametrize("name", sorted(REMEMBERING))
@given(VISITS, st.floats(0.1, 0.9), st.floats(0, 1))
@settings(max_examples=8, deadline=None)
def test_a_memory_after_a_new_scale_is_that_of_the_new_successes(name, visits, scale, share):
    shift = share * (1 - scale)
    steps = [[(x, u) for x, outcomes in (("a", visit), ("b", visit[::-1]), ("c", [0.0, 1.0])) for u in outcomes]
             for visit in visits]  # fmt: skip
    got, expected = memory_of(REMEMBERING[name], steps), memory_of(REMEMBERING[name], steps, scale, shift)
    got.rescale(scale, shift)
    for what in ("columns", "numbers"):
        one, other = getattr(got.memory, what), getattr(expected.memory, what)
        assert one.keys() == other.keys()
        for key in one.keys() - LEFT.get(name, set()):
            np.testing.assert_allclose(one[key], other[key], atol=1e-9, err_msg=f"{name}: {key}")
    again = REMEMBERING[name](seed=0)
    again.load_state_dict(got.state_dict())  # what the memory holds now is what a state may hold


@pytest.mark.slow
def test_a_range_that_grows_while_training_rescales_the_memory():
    """Rewards in [0, 1] at first; then two of 4, so that what was 1 is a quarter of what can be earned."""
    from budgetalloc.training.scoring import Scoring

    policy, scoring = ba.methods.knapsack_rl(seed=0), Scoring(["score"], [1.0], quiet=True)
    for rewards in ([1.0] * 8 + [0.0] * 8, [1.0] * 8 + [0.0] * 6 + [4.0] * 2):
        rewards_R = np.array(rewards)
        measure = scoring.measure(rewards_R, rewards_R[:, None])
        success_R = measure.success(rewards_R, rewards_R[:, None])
        policy.observe(["a"] * 8 + ["b"] * 8, rewards_R, success_R)
        scoring.learn(measure, rewards_R, rewards_R[:, None], Sums().plus(success_R, rewards_R), policy)
    assert scoring.range.of(np.zeros(1)) == (0.0, 4.0)
    assert policy.memory.recall(["a"])["rate"].tolist() == [0.25]
    assert policy.belief(["a"]).mean[0] == pytest.approx((0.5 + 16 / 4) / 17)
