"""The estimator against a naive one that walks through every step; its baseline, its spread and its state."""

import itertools
import json
import re
import tempfile
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Beta, BetaEstimator, InputError, StateError
from budgetalloc.beliefs import estimator as module
from budgetalloc.beliefs.estimator import spread
from budgetalloc.beliefs.ids import blocks
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.testing import same_state

IDS = [0, 1, "1", "a", -3]
SUCCESS = st.sampled_from([0.0, 1.0, 0.25, 1 / 3, None, float("nan")])


class Naive:
    """At each tick, every prompt that was not visited loses a share of its successes, failures and sum of u(1-u)."""

    def __init__(self, prior, discount, idle):
        self.prior, self.discount, self.idle = prior, discount, idle
        self.evidence = {}
        self.visited = set()

    def observe(self, ids, successes):
        scored = [(x, u) for x, u in zip(ids, successes, strict=True) if u is not None and u == u]
        for x in dict.fromkeys(x for x, _ in scored):
            if x not in self.visited:
                self.visited.add(x)
                self.evidence[x] = self.discount * self.evidence.get(x, np.zeros(3))
        for x, u in scored:
            self.evidence[x] = self.evidence[x] + [u, 1 - u, u * (1 - u)]

    def tick(self):
        for x in self.evidence.keys() - self.visited:
            self.evidence[x] = self.idle * self.evidence[x]
        self.visited = set()

    def belief(self, x):
        s, f, d = self.evidence.get(x, (0, 0, 0))
        a, b = self.prior[0] + s, self.prior[1] + f
        return a, b, max(1 - d * (a + b) / (a * b), 0)


events = st.lists(
    st.one_of(st.integers(1, 40), st.lists(st.tuples(st.sampled_from(IDS), SUCCESS), max_size=6)),  # steps, or rows
    max_size=15,
)


@given(events, st.sampled_from([0.0, 0.2, 0.9, 1.0]), st.sampled_from([0.5, 0.999, 1.0]))
@settings(max_examples=300, deadline=None)
def test_against_the_naive_estimator(history, discount, idle):
    prior = (0.5, 1.5)
    estimator, naive = BetaEstimator(prior=prior, discount=discount, idle=idle), Naive(prior, discount, idle)
    for event in history:
        for each in (estimator, naive):
            if isinstance(event, list):
                each.observe([x for x, _ in event], [u for _, u in event])
            for _ in range(event if isinstance(event, int) else 0):
                each.tick()
        belief = estimator.belief(IDS)
        expected = np.array([naive.belief(x) for x in IDS])
        got = np.column_stack([belief.alpha_P, belief.beta_P, belief.spread_P])
        assert got == pytest.approx(expected, rel=1e-9)
        assert estimator.cold(IDS).tolist() == [x not in naive.evidence for x in IDS]
        assert len(estimator) == len(naive.evidence)


def seen(steps=30, seed=0, **settings_):
    estimator = BetaEstimator(**settings_)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        rows = rng.integers(0, len(IDS), size=6)
        estimator.observe([IDS[r] for r in rows], rng.random(6))
        estimator.tick()
    return estimator


def through_json(state):
    lists = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in state.items()}
    return json.loads(json.dumps(lists))


def through_a_file(state):
    with tempfile.TemporaryDirectory() as folder:
        save_state(f"{folder}/state.npz", state)
        return load_state(f"{folder}/state.npz")[0]


@pytest.mark.parametrize("within_a_step", [False, True])
@pytest.mark.parametrize("travel", [lambda s: s, through_json, through_a_file])
def test_state_round_trips_to_the_bit(travel, within_a_step):
    first, second = seen(discount=0.7, idle=0.999), BetaEstimator(discount=0.7, idle=0.999)
    if within_a_step:
        first.observe(["a", "a", 0], [1, 0.25, 0])
    second.load_state_dict(travel(first.state_dict()))
    assert same_state(first.state_dict(), second.state_dict())
    assert list(map(type, first.ids())) == list(map(type, second.ids()))
    for _ in range(3):
        for estimator in (first, second):
            estimator.observe(["a", "new", -3], [1 / 3, 1, 0])
            estimator.tick()
    assert same_state(first.state_dict(), second.state_dict())
    assert (first.belief([*IDS, "new", "x"]).alpha_P == second.belief([*IDS, "new", "x"]).alpha_P).all()


def a_state(**changed):
    """Two prompts at step 5, the first of which was graded and has ended its first visit."""
    kept = {"beliefs": "beta 4", "step": 5, "ids": ["a", 1], "last": np.array([5, 0])}
    kept |= {"evidence": np.array([[3.0, 1.0, 0.5], [0, 2, 0]]), "first_visits": [1.5, 4.0], "seen_before": 1}
    kept["still"] = np.array([[0.75, 0.0], [0.0, 2.0]])
    return kept | changed


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"beliefs": "beta 2"}, "holds beliefs='beta 2', expected 'beta 4'"),
        ({"evidence": [[3, 1, 1.1], [0, 2, 0]]}, "graded successes that do not fit"),
        ({"evidence": [[3, 1, 0.5], [0, 2, 0.1]]}, "graded successes that do not fit"),
        ({"evidence": [[3, -1, 0], [0, 2, 0]]}, "damaged"),
        ({"last": [6, 0]}, "visits outside steps 0 to 5"),
        ({"last": [-1, 0]}, "damaged"),
        ({"seen_before": 3}, "first visits .* of 3 prompts"),
        ({"first_visits": [5.0, 4.0]}, "first visits"),
        ({"first_visits": [-1.0, 4.0]}, "first visits"),
    ],
)
def test_a_state_that_contradicts_itself_is_refused_and_changes_nothing(changed, text):
    estimator = seen(steps=7, seed=1)
    before = estimator.state_dict()
    with pytest.raises(StateError, match=text):
        estimator.load_state_dict(a_state(**changed))
    assert same_state(before, estimator.state_dict())


@pytest.mark.parametrize(
    ("settings_", "text"),
    [
        *(({"prior": x}, "prior=") for x in ((0, 1), (1,), (1, np.inf), (0.5, "1"), (1, 2, 3), {1: 1, 2: 2}, None)),
        ({"prior": "pool"}, "prior='pool': give two positive numbers, such as (0.5, 0.5)"),
        ({"discount": 1.5}, "discount=1.5"),
        ({"discount": -0.1}, "discount=-0.1"),
        ({"idle": 0}, "idle=0"),
        ({"idle": 1.01}, "idle=1.01"),
    ],
)
def test_bad_settings(settings_, text):
    with pytest.raises(InputError, match=re.escape(text)):
        BetaEstimator(**settings_)
    BetaEstimator(prior=np.array([1e-9, 1e9]), discount=0, idle=1e-9)


@pytest.mark.parametrize("settings", [{}, {"idle": 0.9, "discount": 0.8}], ids=str)
def test_the_belief_about_a_few_prompts_is_the_same_as_among_all_and_in_blocks(settings, monkeypatch):
    """For few prompts, only their rows are read. For many, all rows are read."""
    estimator, rng = BetaEstimator(**settings), np.random.default_rng(0)
    for _ in range(6):
        estimator.observe(rng.integers(0, 30, 40), rng.integers(0, 5, 40) / 4)
        estimator.tick()
    belief = estimator.belief(range(50))
    assert belief.spread_P.min() < 1
    for size in (2**14, 7):
        monkeypatch.setattr(module, "blocks", partial(blocks, size=size))
        for some in (range(49, -1, -1), [3], [40, 3, 3, 40], [], [45]):
            part, among = estimator.belief(some), belief.take(list(some))
            for column in ("alpha_P", "beta_P", "spread_P"):
                assert getattr(part, column).tolist() == getattr(among, column).tolist()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.sampled_from([(0.5, 0.5), (1.0, 3.0)]))
def test_the_spread_is_that_of_the_successes_and_of_a_binary_prior(successes, prior):
    estimator = BetaEstimator(prior=prior)
    estimator.observe(["a"] * len(successes), successes)
    belief, n = estimator.belief(["a"]), len(successes) + sum(prior)
    mean = (prior[0] + sum(successes)) / n
    square = (prior[0] + sum(u * u for u in successes)) / n
    assert belief.mean[0] == pytest.approx(mean)
    assert belief.spread_P[0] == pytest.approx((square - mean**2) / (mean * (1 - mean)), abs=1e-9)
    assert 0 <= belief.spread_P[0] <= 1


def test_the_spread_is_clipped_at_0():
    assert spread(np.ones(1), np.ones(1), np.array([10.0])).tolist() == [0]


def test_a_cold_prompt_has_the_mean_success_of_other_first_visits():
    estimator = BetaEstimator(prior=(0.3, 0.3))
    estimator.observe(["known"] * 3 + ["b"] * 2, [1, 1, 0, 0, 0])
    estimator.tick()  # first visits: 2 of 5
    group_R, success_R = np.array([0, 0, 1, 2]), np.array([1.0, 0.0, 1.0, np.nan])
    got = estimator.baseline_belief(["x", "y", "known"], group_R, success_R)
    x, y, known = 3.3 / 6.6, 3.3 / 7.6, 4.3 / 8.6  # 1 of 1, 1 of 2 and 2 of 3 from the other cold prompts
    assert got.mean == pytest.approx([x, x, y, (2 + 0.6 * known) / 3.6])
    assert got.mass == pytest.approx([0.6, 0.6, 0.6, 3.6])
    firm = estimator.baseline_belief(["x", "y", "known"], group_R, success_R, 0.1)
    assert firm.mean == pytest.approx([x, x, y, (2 + 0.06 * known) / 3.06])


@pytest.mark.parametrize("graded", [False, True])
def test_the_baseline_does_not_depend_on_the_own_reward(graded):
    """Enumerated: all successes of five rollouts of three cold prompts and one known."""
    ids_G, group_R = ["a", "b", "c", "known"], np.array([0, 0, 1, 2, 3])
    estimator = seen(steps=3)
    estimator.observe(["known", "x", "y"] * 2, [1, 0, 0, 1, 0, 0.5 * graded])
    for row in range(5):
        for rest in itertools.product([0.0, 1.0], repeat=4):
            both = [np.array([*rest[:row], own, *rest[row:]]) for own in (0.0, 1.0)]
            zero, one = (estimator.baseline_belief(ids_G, group_R, success_R) for success_R in both)
            assert one.mean[row] == pytest.approx(zero.mean[row], abs=1e-12)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.0, np.nan])), max_size=9), max_size=9)
)
def test_first_visits_are_discounted_only_at_steps_with_new_prompts(steps):
    """Against the rule written down row by row; rows may come in several rounds, and a state is loaded between."""
    estimator, seen, sums = BetaEstimator(discount=0.5, idle=0.9), set(), (0.0, 0.0)
    for rows in steps:
        new = [success for x, success in rows if x not in seen and not np.isnan(success)]
        seen |= {x for x, success in rows if not np.isnan(success)}
        if new:
            sums = (0.9 * sums[0] + sum(new), 0.9 * sums[1] + len(new))
        for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            estimator.observe([x for x, _ in part], [success for _, success in part])
            again = BetaEstimator(discount=0.5, idle=0.9)
            again.load_state_dict(estimator.state_dict())
            estimator = again
        estimator.tick()
        assert estimator.first_visits == pytest.approx(sums)


def test_the_spread_goes_with_the_belief_and_with_a_draw():
    belief = Beta([1.0, 2.0], [3.0, 4.0], [0.25, 1.0])
    assert belief.take([1, 0, 0]).spread_P.tolist() == [1, 0.25, 0.25]
    assert belief.tilt(1, 2).spread_P.tolist() == [0.25, 1]
    drawn = belief.sample(np.random.default_rng(0))
    assert drawn.spread_P.tolist() == [0.25, 1]
    assert ba.variance(drawn, [2]).ravel() == pytest.approx(drawn.mean * (1 - drawn.mean) / 2 * [0.25, 1])
    # The chance of a mixed group and the rise of p, which is (1-p) times the variance: a quarter each.
    assert ba.success_gain(belief, [4])[0] == pytest.approx(ba.success_gain(Beta([1.0], [3.0]), [4])[0] / 16)
    assert ba.pass_at_n(belief, [4]).tolist() == ba.pass_at_n(Beta([1.0, 2.0], [3.0, 4.0]), [4]).tolist()


@pytest.mark.parametrize("make", [ba.BetaEstimator, ba.TrackingEstimator])
def test_a_prompt_is_constant_after_four_equal_rollouts_until_one_differs(make):
    estimator, seen = make(), []
    for visit in ([0.3], [0.3, 0.3], [0.3], [0.3], [0.4], [0.4] * 3, [0.4, 0.5], [0.5] * 4):
        estimator.observe(["a"] * len(visit), visit)
        estimator.tick()
        seen.append(float(estimator.constant(["a"])[0]))
    assert np.allclose(seen, [np.nan, np.nan, 0.3, 0.3, np.nan, 0.4, np.nan, 0.5], equal_nan=True)
    assert np.isnan(estimator.constant(["new"]))
