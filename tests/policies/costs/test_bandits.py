"""Bandits whose arms change: answers by hand, a switch that is found, and a state that goes on."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc.errors import StateError
from budgetalloc.policies.costs.bandits import discounted_thompson, discounted_ucb, sliding_window_ucb

BUILDS = {
    "discounted_ucb": lambda **more: discounted_ucb([4, 8, 16], **{"discount": 0.95, "bound": 0.3, **more}),
    "sliding_window_ucb": lambda **more: sliding_window_ucb([4, 8, 16], **{"window": 40, "bound": 0.5, **more}),
    "discounted_thompson": lambda **more: discounted_thompson([4, 8, 16], **{"discount": 0.95, **more}),
}


def test_discounted_ucb_by_hand():
    """Rewards 1, 0, 1 of arms a, b, a at discount 1/2: N_a = 1/4 + 1, N_b = 1/2, X_a = 1, X_b = 0 (exact)."""
    for xi, best in ((0.6, "a"), (6.0, "b")):  # a wider bonus favours the arm with fewer pulls
        bandit = discounted_ucb(["a", "b"], discount=0.5, xi=xi, bound=1.0)
        for arm, reward in (("a", 1.0), ("b", 0.0), ("a", 1.0)):
            bandit.observe(arm, reward)
        spread = xi * math.log(1.75)
        expected = [1 + 2 * math.sqrt(spread / 1.25), 0 + 2 * math.sqrt(spread / 0.5)]
        np.testing.assert_allclose(bandit.scores(), expected, rtol=1e-14)
        assert bandit.choose() == best


def test_sliding_window_ucb_by_hand():
    """Of four rewards the last three count: N_a = 1, N_b = 2, X_a = 0, X_b = 3/4, ln(min(4, 3))."""
    bandit = sliding_window_ucb(["a", "b"], window=3, xi=0.6, bound=1.0)
    for arm, reward in (("a", 1.0), ("b", 1.0), ("a", 0.0), ("b", 0.5)):
        bandit.observe(arm, reward)
    spread = 0.6 * math.log(3)
    np.testing.assert_allclose(bandit.scores(), [math.sqrt(spread), 0.75 + math.sqrt(spread / 2)], rtol=1e-14)


def test_discounted_thompson_by_hand():
    """All arms fade at each reward: S_a = g + 0.25, F_a = 0.75, S_b = 0, F_b = g; the mean of many draws is that."""
    g, a, b = 0.5, [], []
    for seed in range(2000):
        bandit = discounted_thompson(["a", "b"], discount=g, prior=(1.0, 2.0), seed=seed)
        for arm, reward in (("a", 1.0), ("b", 0.0), ("a", 0.25)):
            bandit.observe(arm, reward)
        for draws, score in zip((a, b), bandit.scores(), strict=True):
            draws.append(score)
    s_a, f_a, s_b, f_b = g * g + 0.25, 0.75, 0.0, g
    assert bandit.state_dict()["rewards"] == [s_a, s_b]
    assert bandit.state_dict()["pulls"] == [s_a + f_a, s_b + f_b]
    assert np.mean(a) == pytest.approx((1 + s_a) / (3 + s_a + f_a), abs=0.015)
    assert np.mean(b) == pytest.approx((1 + s_b) / (3 + s_b + f_b), abs=0.015)


def test_an_arm_never_used_comes_first():
    for build in (discounted_ucb, sliding_window_ucb):
        bandit, chosen = build([3, 1, 2]), []
        for _ in range(3):
            chosen.append(bandit.choose())
            bandit.observe(chosen[-1], 1.0)
        assert chosen == [3, 1, 2]


def play(bandit, rates: list[dict], steps: int, seed: int) -> list:
    """Arms chosen, `steps` under each of the rates."""
    rng, chosen = np.random.default_rng(seed), []
    for rate in rates:
        for _ in range(steps):
            chosen.append(bandit.choose())
            bandit.observe(chosen[-1], float(rng.random() < rate[chosen[-1]]))
    return chosen


@pytest.mark.parametrize("name", BUILDS)
def test_a_switch_of_the_best_arm_is_found(name):
    before, after = {4: 0.2, 8: 0.8, 16: 0.4}, {4: 0.8, 8: 0.2, 16: 0.4}
    shares = []
    for seed in range(5):
        chosen = play(BUILDS[name](), [before, after], 300, seed)
        shares.append((chosen[150:300].count(8) / 150, chosen[450:].count(4) / 150))
    assert np.mean(shares, axis=0).min() > 0.6


def test_without_forgetting_the_switch_is_found_much_later():
    before, after = {4: 0.1, 8: 0.9, 16: 0.1}, {4: 0.9, 8: 0.1, 16: 0.1}
    after_share = {}
    for discount in (0.95, 1.0):
        chosen = [play(discounted_thompson([4, 8, 16], discount=discount), [before, after], 300, s) for s in range(5)]
        after_share[discount] = np.mean([arms[300:400].count(4) / 100 for arms in chosen])
    assert after_share[0.95] > after_share[1.0] + 0.3


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(sorted(BUILDS)),
    st.lists(st.tuples(st.sampled_from([4, 8, 16]), st.floats(0, 1)), max_size=60),
    st.integers(0, 5),
)
def test_a_saved_bandit_goes_on_as_the_one_that_never_stopped(name, rewards, more):
    kept = BUILDS[name]()
    for arm, reward in rewards:
        kept.observe(arm, reward)
    other = BUILDS[name]()
    other.load_state_dict(json.loads(json.dumps(kept.state_dict())))
    for _ in range(more):
        assert kept.choose() == other.choose()
        for bandit in (kept, other):
            bandit.observe(bandit.choose(), 0.5)
    np.testing.assert_array_equal(kept.scores(), other.scores())
    assert kept.state_dict() == other.state_dict()


@pytest.mark.parametrize("name", BUILDS)
def test_choosing_changes_nothing(name):
    bandit = BUILDS[name]()
    bandit.observe(8, 1.0)
    before = json.dumps(bandit.state_dict())
    assert [bandit.choose() for _ in range(3)] == [bandit.choose()] * 3
    assert json.dumps(bandit.state_dict()) == before


def test_only_the_seed_makes_draws_differ():
    arms = {seed: [] for seed in (0, 1)}
    for seed, chosen in arms.items():
        for again in range(2):
            bandit = discounted_thompson(list(range(5)), seed=seed)
            chosen.append([(bandit.choose(), bandit.observe(0, 1.0))[0] for _ in range(20)])
            assert chosen[again] == chosen[0]
    assert arms[0][0] != arms[1][0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("pulls"),
        lambda state: state.update(pulls=[1.0]),
        lambda state: state.update(pulls=[math.nan] * 3),
        lambda state: state.update(rewards=[9.0, 0.0, 0.0]),
        lambda state: state.update(recent=[[7, 1.0]]),
        lambda state: state.update(recent=3),
        lambda state: state.update(name="another"),
    ],
)
@pytest.mark.parametrize("name", BUILDS)
def test_a_damaged_state_changes_nothing(name, spoil):
    bandit = BUILDS[name]()
    bandit.observe(8, 1.0)
    before = bandit.state_dict()
    state = bandit.state_dict()
    spoil(state)
    with pytest.raises(StateError):
        bandit.load_state_dict(state)
    assert bandit.state_dict() == before
