"""A bandit whose arms change: answers by hand, a switch that is found, and a state that goes on."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.errors import StateError
from budgetalloc.policies.costs.bandits import SlidingWindowUCB


def build(window=40):
    return SlidingWindowUCB([4, 8, 16], window=window, bound=0.5)


def test_scores_by_hand():
    """Of four rewards the last three count: N_a = 1, N_b = 2, X_a = 0, X_b = 3/4, ln(min(4, 3))."""
    bandit = SlidingWindowUCB(["a", "b"], window=3, xi=0.6, bound=1.0)
    for arm, reward in (("a", 1.0), ("b", 1.0), ("a", 0.0), ("b", 0.5)):
        bandit.observe(arm, reward)
    spread = 0.6 * math.log(3)
    np.testing.assert_allclose(bandit.scores(), [math.sqrt(spread), 0.75 + math.sqrt(spread / 2)], rtol=1e-14)


def test_an_arm_never_used_comes_first():
    bandit, chosen = SlidingWindowUCB([3, 1, 2]), []
    for _ in range(3):
        chosen.append(bandit.choose())
        bandit.observe(chosen[-1], 1.0)
    assert chosen == [3, 1, 2]


def play(bandit, seed):
    """Arms chosen, 300 before and 300 after the best arm changes from 8 to 4."""
    rng, chosen = np.random.default_rng(seed), []
    for rate in ({4: 0.2, 8: 0.8, 16: 0.4}, {4: 0.8, 8: 0.2, 16: 0.4}):
        for _ in range(300):
            chosen.append(bandit.choose())
            bandit.observe(chosen[-1], float(rng.random() < rate[chosen[-1]]))
    return chosen


def test_a_switch_of_the_best_arm_is_found_and_much_later_without_forgetting():
    runs = [play(build(), seed) for seed in range(5)]
    assert np.mean([arms[150:300].count(8) for arms in runs]) > 0.6 * 150
    assert np.mean([arms[450:].count(4) for arms in runs]) > 0.6 * 150
    kept = [play(build(window=600), seed) for seed in range(5)]
    early, late = (np.mean([arms[300:400].count(4) for arms in each]) for each in (runs, kept))
    assert early > late + 20


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([4, 8, 16]), st.floats(0, 1)), max_size=60), st.integers(0, 5))
def test_a_saved_bandit_goes_on_as_the_one_that_never_stopped(rewards, more):
    kept, other = build(), build()
    for arm, reward in rewards:
        kept.observe(arm, reward)
    other.load_state_dict(json.loads(json.dumps(kept.state_dict())))
    for _ in range(more):
        assert kept.choose() == other.choose()
        for bandit in (kept, other):
            bandit.observe(bandit.choose(), 0.5)
    np.testing.assert_array_equal(kept.scores(), other.scores())
    assert kept.state_dict() == other.state_dict()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("recent"),
        lambda state: state.update(recent=[[7, 1.0]]),
        lambda state: state.update(recent=[[0, math.nan]]),
        lambda state: state.update(recent=3),
        lambda state: state.update(arms=2),
        lambda state: state.update(time=0),
    ],
)
def test_a_damaged_state_changes_nothing(spoil):
    bandit = build()
    bandit.observe(8, 1.0)
    before, state = bandit.state_dict(), bandit.state_dict()
    spoil(state)
    with pytest.raises(StateError):
        bandit.load_state_dict(state)
    assert bandit.state_dict() == before
