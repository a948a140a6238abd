"""The estimator against a naive implementation that walks through every step, and its state."""

import json
import math
import re
import tempfile
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from budgetalloc import BetaEstimator, InputError, StateError
from budgetalloc.beliefs import estimator as module
from budgetalloc.beliefs.blocks import blocks
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.testing import same_state

IDS = [0, 1, "1", "a", -3]


class Naive:
    """Step by step: at each tick, every prompt that was not visited loses a share of its evidence."""

    def __init__(self, prior, discount, idle):
        self.prior, self.discount, self.idle = prior, discount, idle
        self.evidence: dict[object, list[float]] = {}
        self.visited: set[object] = set()

    def observe(self, ids, rewards):
        scored = [(x, r) for x, r in zip(ids, rewards, strict=True) if r is not None and r == r]
        for x in dict.fromkeys(x for x, _ in scored):
            if x not in self.visited:
                self.visited.add(x)
                self.evidence[x] = [self.discount * e for e in self.evidence.get(x, [0.0, 0.0])]
        for x, r in scored:
            self.evidence[x][0] += r
            self.evidence[x][1] += 1 - r

    def tick(self):
        for x, e in self.evidence.items():
            if x not in self.visited:
                self.evidence[x] = [self.idle * y for y in e]
        self.visited = set()

    def belief(self, x):
        s, f = self.evidence.get(x, (0.0, 0.0))
        return self.prior[0] + s, self.prior[1] + f


rewards = st.sampled_from([0.0, 1.0, 0.25, 1 / 3, None, float("nan")])
events = st.lists(
    st.one_of(
        st.none(),  # a tick
        st.lists(st.tuples(st.sampled_from(IDS), rewards), max_size=6),
        st.integers(2, 40),  # many idle steps
    ),
    max_size=15,
)


def compare(estimator, naive, history, rel):
    for event in history:
        if isinstance(event, list):
            for each in (estimator, naive):
                each.observe([x for x, _ in event], [r for _, r in event])
        else:
            for _ in range(event or 1):
                estimator.tick()
                naive.tick()
        belief = estimator.belief(IDS)
        expected = np.array([naive.belief(x) for x in IDS])
        # Idle decay of the current step happens at its end, in both.
        assert belief.alpha_P == pytest.approx(expected[:, 0], rel=rel)
        assert belief.beta_P == pytest.approx(expected[:, 1], rel=rel)
        assert estimator.cold(IDS).tolist() == [x not in naive.evidence for x in IDS]
        assert len(estimator) == len(naive.evidence)


@given(events, st.sampled_from([0.0, 0.2, 0.9, 1.0]), st.sampled_from([0.5, 0.999, 1.0]))
@settings(max_examples=300, deadline=None)
def test_against_the_naive_estimator(history, discount, idle):
    prior = (0.5, 1.5)
    estimator, naive = BetaEstimator(prior=prior, discount=discount, idle=idle), Naive(prior, discount, idle)
    compare(estimator, naive, history, rel=1e-9)


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


POOL = {"prior": "pool", "discount": 0.9, "idle": 0.99, "drift": True}


@pytest.mark.parametrize("within_a_step", [False, True])
@pytest.mark.parametrize("travel", [lambda s: s, through_json, through_a_file])
@pytest.mark.parametrize("settings_", [{"discount": 0.7, "idle": 0.999}, POOL], ids=["plain", "pool"])
def test_state_round_trips_to_the_bit(settings_, travel, within_a_step):
    first, second = seen(**settings_), BetaEstimator(**settings_)
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


def test_the_empty_state_round_trips():
    estimator = seen()
    estimator.load_state_dict(through_json(BetaEstimator().state_dict()))
    assert len(estimator) == 0
    assert estimator.step == 0
    assert estimator.cold(["a"]).all()


def test_the_state_is_a_copy():
    estimator = seen()
    state, before = estimator.state_dict(), estimator.state_dict()
    estimator.observe(["a"] * 3, [1, 1, 1])
    assert same_state(state, before)
    state["evidence"][:] = 7
    other = BetaEstimator()
    other.load_state_dict(state)
    state["evidence"][:] = 9
    assert (other.state_dict()["evidence"] == 7).all()


@pytest.mark.parametrize(
    ("settings_", "text"),
    [
        ({"prior": (0, 1)}, "prior=(0, 1)"),
        ({"prior": (1,)}, "prior=(1,)"),
        ({"prior": (1, float("inf"))}, "prior=(1, inf)"),
        *(({"prior": x}, "prior=") for x in ((0.5, -1.0), (0.5, "1"), (1, 2, 3), {1: 1, 2: 2}, None, "pools")),
        ({"discount": 1.5}, "discount=1.5"),
        ({"discount": -0.1}, "discount=-0.1"),
        ({"idle": 0}, "idle=0"),
        ({"idle": 1.01}, "idle=1.01"),
        ({"prior": "poool"}, "prior='poool': give two positive numbers, such as (0.5, 0.5), or \"pool\""),
        ({"drift": 1}, "drift=1"),
        ({"drift": "yes"}, "drift='yes': use True"),
        ({"drift": 0.003}, "drift=0.003: use True"),
    ],
)
def test_bad_settings(settings_, text):
    with pytest.raises(InputError, match=re.escape(text)):
        BetaEstimator(**settings_)


@pytest.mark.parametrize(
    ("ids", "rewards_R", "text"),
    [
        (["a", "b"], [1.0], "success_R has shape (1,) for 2 ids"),
        (["a"], [[1.0]], "success_R has shape (1, 1) for 1 ids"),
        (["a", "b"], [0.0, 1.5], "success_R[1] = 1.5 lies outside [0, 1]"),
        (["a"], [-1], "success_R[0] = -1 lies outside"),
        (["a"], [float("inf")], "success_R[0] = inf"),
        (["a"], ["good"], "success_R=['good']"),
        ([1.5], [1.0], "ids_R[0] is 1.5"),
    ],
)
def test_bad_rows_change_nothing(ids, rewards_R, text):
    estimator = seen(steps=5)
    before = estimator.state_dict()
    with pytest.raises(InputError, match=re.escape(text)):
        estimator.observe(ids, rewards_R)
    assert same_state(before, estimator.state_dict())


def test_belief_takes_repeats():
    estimator = seen()
    assert (estimator.belief(["a", 0, "a"]).alpha_P == estimator.belief(["a", 0]).alpha_P[[0, 1, 0]]).all()
    with pytest.raises(InputError, match=r"ids_P\[1\]"):
        estimator.belief(["a", None])


class NaivePool(Naive):
    """The pool's prior and the drift, one prompt at a time. Evidence is kept as of the last visit."""

    def __init__(self, discount, idle):
        super().__init__((0.5, 0.5), discount, idle)
        self.step, self.total, self.score, self.information = 0, 0.0, 0.0, 0.0
        self.last: dict[object, tuple[int, float]] = {}
        self.open: dict[object, dict[str, float]] = {}

    def now(self, x):
        if x not in self.evidence:
            return 0.0, 0.0
        (s, f), (step, level) = self.evidence[x], self.last[x]
        fade, moved = self.idle ** max(self.step - step - 1, 0), self.total - level
        return s * fade * math.exp(min(moved, 0)), f * fade * math.exp(-max(moved, 0))

    def observe(self, ids, rewards):
        for x, r in zip(ids, rewards, strict=True):
            if r is None or r != r:
                continue
            if x not in self.open:
                a, b = self.belief(x)
                step, level = self.last.get(x, (self.step, self.total))
                self.open[x] = {
                    "gap": self.step - step,
                    "moved": self.total - level,
                    "mean": a / (a + b),
                    "n": 0,
                    "s": 0,
                }
                self.evidence[x] = [self.discount * e for e in self.now(x)]
                self.last[x] = (self.step, self.total)
            self.open[x]["n"] += 1
            self.open[x]["s"] += r
            self.evidence[x][0] += r
            self.evidence[x][1] += 1 - r

    def tick(self):
        self.score, self.information = 0.99 * self.score, 0.99 * self.information
        for v in self.open.values():
            weight = v["n"] * v["mean"] * (1 - v["mean"])
            self.score += v["gap"] * (v["s"] - v["n"] * v["mean"] + weight * v["moved"])
            self.information += v["gap"] ** 2 * weight
        self.total += self.score / (self.information + 1e4)
        self.open = {}
        self.step += 1
        first, second = 16 * 0.5, 16 * 0.375  # sums of E[p] and E[p^2], of 16 prompts at Beta(0.5, 0.5)
        for x in self.evidence:
            a, b = self.belief(x)
            first += a / (a + b)
            second += a * (a + 1) / (a + b) / (a + b + 1)
        mean = first / (16 + len(self.evidence))
        var = second / (16 + len(self.evidence)) - mean**2
        strength = mean * (1 - mean) / var - 1
        self.prior = (mean * strength, (1 - mean) * strength)

    def belief(self, x):
        s, f = self.now(x)
        return self.prior[0] + s, self.prior[1] + f


@given(events, st.sampled_from([0.0, 0.2, 0.9, 1.0]), st.sampled_from([0.5, 0.999, 1.0]))
@settings(max_examples=200, deadline=None)
@pytest.mark.slow
def test_the_pool_against_the_naive_one(history, discount, idle):
    estimator = BetaEstimator(prior="pool", discount=discount, idle=idle, drift=True)
    naive = NaivePool(discount, idle)
    compare(estimator, naive, history, rel=1e-6)


def rising(estimators, rate, steps=300, prompts=600, seen_a_step=60):
    """Feeds groups of 8 from a pool whose log-odds rise by `rate` a step; returns the rates at the end."""
    rng = np.random.default_rng(0)
    logit = rng.normal(-1, 2, prompts)
    for step in range(steps):
        at = rng.choice(prompts, seen_a_step, replace=False)
        p = 1 / (1 + np.exp(-logit[at] - rate * step))
        passed = rng.random(8 * seen_a_step) < np.repeat(p, 8)
        for estimator in estimators:
            estimator.observe(np.repeat(at, 8), passed)
            estimator.tick()
    return 1 / (1 + np.exp(-logit - rate * steps))


@pytest.mark.parametrize("rate", [0.0, 0.004, -0.004])
@pytest.mark.parametrize("discount", [0.7, 1.0])
def test_the_drift_is_learned(rate, discount):
    moving = BetaEstimator(prior="pool", discount=discount, drift=True)
    still = BetaEstimator(prior="pool", discount=discount)
    p = rising([moving, still], rate)
    assert moving.state_dict()["drift"][0] == pytest.approx(300 * rate, abs=0.3)
    error, late = (abs(e.belief(range(600)).mean.mean() - p.mean()) for e in (moving, still))
    assert error < 0.015
    assert late > 3 * error or rate == 0


def test_idle_prompts_move_with_the_drift_and_gain_no_evidence():
    estimator = BetaEstimator(drift=True)
    estimator.observe(["idle"] * 8, [1] * 3 + [0] * 5)
    before = estimator.belief(["idle"])
    for passed in range(1, 40):  # the others rise
        ids = np.repeat(np.arange(300), 8)
        estimator.observe(ids, np.tile(np.arange(8) < passed // 5, 300))
        estimator.tick()
    after, total = estimator.belief(["idle"]), estimator.state_dict()["drift"][0]
    assert total > 0.5
    assert after.alpha_P[0] == before.alpha_P[0] == 3.5
    assert after.beta_P[0] == pytest.approx(0.5 + 5 * math.exp(-total))


def test_cold_prompts_get_the_pools_prior():
    """Half of 2,000 prompts always pass, half never do: a U with mean 1/2. Then only one in ten passes."""
    estimator = BetaEstimator(prior="pool")
    assert estimator.belief(["new"]).alpha_P[0] == 0.5
    ids = np.repeat(np.arange(2000), 32)
    estimator.observe(ids, ids % 2 == 0)
    for _ in range(50):
        estimator.tick()
    cold = estimator.belief(["new"])
    assert cold.mean[0] == pytest.approx(0.5)
    assert cold.alpha_P[0] < 0.05  # surely one or the other
    tenth = BetaEstimator(prior="pool")
    tenth.observe(ids, np.tile(np.arange(32) % 10 == 0, 2000))  # 4 of 32 in each: no spread at all
    for _ in range(200):
        tenth.tick()
    cold = tenth.belief(["new"])
    assert cold.mean[0] == pytest.approx(0.125, abs=0.01)
    assert cold.alpha_P[0] + cold.beta_P[0] > 20  # 16 prompts at (0.5, 0.5) keep it from being sure
    assert tenth.belief([0]).mean[0] == pytest.approx(0.125, abs=0.01)


@given(st.permutations(range(12)), st.integers(0, 2**32 - 1), st.integers(0, 35))
@settings(max_examples=60, deadline=None)
@example([1, 2, 5, 3, 4, 0, 6, 7, 8, 9, 10, 11], 435, 3)  # cut through a group, where sums are rounded otherwise
def test_the_pool_does_not_depend_on_the_order_of_ids_or_calls(order, seed, cut):
    """Equal to the bit. If a call ends within a prompt's group, equal up to rounding."""
    rng = np.random.default_rng(seed)
    one, other = BetaEstimator(**POOL), BetaEstimator(**POOL)
    for _ in range(8):
        rewards_ = {x: rng.integers(0, 2, 5) for x in rng.choice(12, 7, replace=False).tolist()}
        straight, turned = sorted(rewards_), [x for x in order if x in rewards_]
        one.observe(np.repeat(straight, 5), np.concatenate([rewards_[x] for x in straight]))
        rows = [(x, r) for x in turned for r in rewards_[x]]
        for part in (rows[:cut], rows[cut:]):
            other.observe([x for x, _ in part], [r for _, r in part])
        one.tick()
        other.tick()
    a, b = one.state_dict(), other.state_dict()
    rounding = 0.0 if cut % 5 == 0 else 1e-9
    np.testing.assert_allclose([*a["prior"], *a["drift"]], [*b["prior"], *b["drift"]], rtol=rounding, atol=rounding)
    believed, turned = one.belief(range(13)), other.belief(range(13))
    np.testing.assert_allclose(believed.alpha_P, turned.alpha_P, rtol=rounding)
    np.testing.assert_allclose(believed.beta_P, turned.beta_P, rtol=rounding)


def test_a_state_with_or_without_a_learned_prior_fits_both_kinds_of_estimators():
    plain, pool = seen(discount=0.9, idle=0.99), BetaEstimator(**POOL)
    pool.load_state_dict(plain.state_dict())
    assert (pool.belief([*IDS, "x"]).alpha_P == plain.belief([*IDS, "x"]).alpha_P).all()
    pool.tick()
    assert pool.belief(["x"]).alpha_P[0] != 0.5
    back = BetaEstimator(discount=0.9, idle=0.99)
    back.load_state_dict(seen(**POOL).state_dict())
    assert back.belief(["x"]).alpha_P[0] == 0.5
    assert set(back.state_dict()) == {"version", "step", "ids", "evidence", "graded", "last", "earned", "met"}


@pytest.mark.parametrize(
    "damage",
    [
        {"last": [-1] * 5},
        {"evidence": -np.ones((5, 2))},
        {"prior": [0.5]},
        {"drift": [0.0, 0.0]},
        {"visits": [[0.0] * 6]},
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    estimator = seen(steps=7, seed=1, **POOL)
    before = estimator.state_dict()
    with pytest.raises(StateError, match="damaged"):
        estimator.load_state_dict({**seen(**POOL).state_dict(), **damage})
    assert same_state(before, estimator.state_dict())


def test_the_defaults_and_the_ends_of_every_range():
    plain = BetaEstimator()
    assert (plain.prior, plain.discount, plain.idle, plain.drift) == ((0.5, 0.5), 1.0, 1.0, False)
    assert (plain.step, plain.first_visits, len(plain), plain.ids()) == (0, (0.0, 0.0), 0, [])
    BetaEstimator(prior=np.array([1e-9, 1e9]), discount=0, idle=1e-9, drift=np.True_)
    BetaEstimator(prior=[0.5, 2], discount=1, idle=1)


def test_a_prompt_that_is_visited_at_every_step_is_stored_once():
    estimator = BetaEstimator(idle=0.9)
    for _ in range(80):
        estimator.observe(["a"], [1])
        estimator.tick()
    assert len(estimator) == 1
    assert estimator.belief(["a"]).alpha_P == pytest.approx([80.5])  # no step without a visit
    assert estimator.state_dict()["last"].tolist() == [79]


@pytest.mark.parametrize(
    ("scale", "shift", "mean", "successes"),
    [(0.5, 0.25, None, 2.5), (1.0, -2.0, 1e-6, 0.0), (1.0, 2.0, 1 - 1e-6, 4.0), (1.0, 0.0, None, 3.0)],
)
def test_the_pool_and_the_first_visits_on_a_new_scale(scale, shift, mean, successes):
    estimator = BetaEstimator(**POOL)
    estimator.observe(["a"] * 4, [1, 1, 1, 0])
    estimator.tick()
    a, b = estimator.state_dict()["prior"]
    estimator.rescale(scale, shift)
    mean = scale * a / (a + b) + shift if mean is None else mean
    assert estimator.state_dict()["prior"] == pytest.approx([(a + b) * mean, (a + b) * (1 - mean)])
    assert estimator.first_visits == pytest.approx((successes, 4.0))


@pytest.mark.parametrize(
    ("scale", "shift", "text"),
    [
        *((scale, 0.0, "scale=") for scale in (0, -1, np.inf, np.nan)),
        *((1.0, shift, "shift=") for shift in (np.inf, -np.inf, np.nan, None)),
    ],
)
def test_a_scale_is_positive_and_a_shift_finite(scale, shift, text):
    with pytest.raises(InputError, match=text):
        BetaEstimator().rescale(scale, shift)


def test_the_open_visits_of_the_drift_are_rescaled_too():
    estimator = BetaEstimator(drift=True)
    estimator.observe(["a"] * 4, [1, 1, 1, 0])
    before = estimator.state_dict()["visits"][0]
    estimator.rescale(0.5, 0.25)
    after = estimator.state_dict()["visits"][0]
    assert (before[3:].tolist(), after[3:].tolist()) == ([0.5, 3, 4], [0.5, 2.5, 4])  # mean, successes, rollouts
    estimator.rescale(0.5, 0.0)
    assert estimator.state_dict()["visits"][0][3:].tolist() == [0.25, 1.25, 4]


@pytest.mark.parametrize("settings", [{}, {"idle": 0.9}, {"idle": 0.9, "drift": True, "prior": "pool"}], ids=str)
def test_the_belief_about_a_few_prompts_is_the_same_as_among_all(settings):
    """For few prompts, only their rows are read. For many, all rows are read."""
    estimator, rng = BetaEstimator(**settings), np.random.default_rng(0)
    for _ in range(6):
        estimator.observe(rng.integers(0, 30, 40), rng.integers(0, 5, 40) / 4)
        estimator.tick()
    every = list(range(50))
    belief = estimator.belief(every)
    for some in (every[::-1], [3], [40, 3, 3, 40], [], [45]):
        part, among = estimator.belief(some), belief.take(some)
        assert (part.alpha_P == among.alpha_P).all()
        assert (part.beta_P == among.beta_P).all()
        assert (part.spread_P == among.spread_P).all()


@pytest.mark.parametrize("asked", [range(60), range(3, 20)])  # more than are known, and fewer
def test_the_beliefs_do_not_depend_on_the_blocks(monkeypatch, asked):
    belief = BetaEstimator(idle=0.9, discount=0.8)
    rng = np.random.default_rng(0)
    for _ in range(4):
        belief.observe(rng.integers(50, size=30), rng.choice([0.0, 1.0, 0.3], size=30, p=[0.45, 0.45, 0.1]))
        belief.tick()
    whole = belief.belief(asked)
    assert whole.spread_P.min() < 1
    monkeypatch.setattr(module, "blocks", partial(blocks, size=7))
    parts = belief.belief(asked)
    for column in ("alpha_P", "beta_P", "spread_P"):
        assert getattr(parts, column).tolist() == getattr(whole, column).tolist()
