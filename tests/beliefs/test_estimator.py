"""The estimator against a naive implementation that walks through every step, and its state."""

import json
import re
import tempfile
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
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
        *(({"prior": x}, "prior=") for x in ((0.5, -1.0), (0.5, "1"), (1, 2, 3), {1: 1, 2: 2}, None)),
        ({"discount": 1.5}, "discount=1.5"),
        ({"discount": -0.1}, "discount=-0.1"),
        ({"idle": 0}, "idle=0"),
        ({"idle": 1.01}, "idle=1.01"),
        ({"prior": "pool"}, "prior='pool': give two positive numbers, such as (0.5, 0.5)"),
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


@pytest.mark.parametrize("damage", [{"last": [-1] * 5}, {"evidence": -np.ones((5, 2))}])
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    estimator = seen(steps=7, seed=1)
    before = estimator.state_dict()
    with pytest.raises(StateError, match="damaged"):
        estimator.load_state_dict({**seen().state_dict(), **damage})
    assert same_state(before, estimator.state_dict())


def test_the_defaults_and_the_ends_of_every_range():
    plain = BetaEstimator()
    assert (plain.prior, plain.discount, plain.idle) == ((0.5, 0.5), 1.0, 1.0)
    assert (plain.step, plain.first_visits, len(plain), plain.ids()) == (0, (0.0, 0.0), 0, [])
    BetaEstimator(prior=np.array([1e-9, 1e9]), discount=0, idle=1e-9)
    BetaEstimator(prior=[0.5, 2], discount=1, idle=1)


def test_a_prompt_that_is_visited_at_every_step_is_stored_once():
    estimator = BetaEstimator(idle=0.9)
    for _ in range(80):
        estimator.observe(["a"], [1])
        estimator.tick()
    assert len(estimator) == 1
    assert estimator.belief(["a"]).alpha_P == pytest.approx([80.5])  # no step without a visit
    assert estimator.state_dict()["last"].tolist() == [79]


@pytest.mark.parametrize("settings", [{}, {"idle": 0.9}], ids=str)
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
