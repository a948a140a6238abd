"""DUMP and SEC: what they learn of a category, and how often they draw from it."""

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.policies.published.which_prompts.categories import add_to_window, draw_order, dump, sec, upper_bounds


def first(prompt):
    return str(prompt)[0]


def levels(prompt):
    return prompt % 3


BOTH = [dump, sec]
each_method = pytest.mark.parametrize("make", BOTH, ids=lambda make: make.__name__)


# --- the order of draws ---


def test_the_first_draw_follows_the_softmax():
    """Computed: exp(1), exp(0), exp(-1) over their sum; 4,000 draws, four standard errors."""
    category_P = np.array([2, 0, 1, 0, 0, 1, 2])
    rng, n = np.random.default_rng(0), 4000
    drawn = [category_P[draw_order([1.0, 0.0, -1.0], category_P, rng)[0]] for _ in range(n)]
    expected = np.exp([1, 0, -1]) / np.exp([1, 0, -1]).sum()
    got = np.bincount(drawn, minlength=3) / n
    assert (np.abs(got - expected) < 4 * np.sqrt(expected * (1 - expected) / n)).all()


def test_a_category_that_has_run_out_is_left_to_the_others():
    """Computed: of the orders of the categories 0, 1, 1 and a 2, by sequential draws with weights 4, 1, 1."""
    category_P = np.array([0, 1, 1, 2])
    weights = np.array([4.0, 1.0, 1.0])
    expected: dict[tuple[int, ...], float] = {}

    def follow(chosen, left, chance):
        if not left.sum():
            expected[chosen] = chance
            return
        open_weights = weights * (left > 0)
        for c in np.flatnonzero(left):
            follow((*chosen, int(c)), left - np.eye(3, dtype=int)[c], chance * open_weights[c] / open_weights.sum())

    follow((), np.array([1, 2, 1]), 1.0)
    rng, n = np.random.default_rng(1), 6000
    counted = dict.fromkeys(expected, 0)
    for _ in range(n):
        counted[tuple(category_P[draw_order(np.log(weights), category_P, rng)].tolist())] += 1
    for order, chance in expected.items():
        assert abs(counted[order] / n - chance) < 4.5 * sqrt(chance * (1 - chance) / n), order


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.floats(1e-3, 1e6))
@settings(deadline=None, max_examples=40)
def test_the_order_has_every_prompt_once_and_keeps_the_order_inside_a_category(categories, steepness):
    category_P = np.unique(categories, return_inverse=True)[1]
    logits = -steepness * np.arange(category_P.max() + 1)
    order = draw_order(logits, category_P, np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(len(categories)))
    for c in range(len(logits)):
        inside = order[category_P[order] == c]
        assert (np.diff(inside) > 0).all()


def assert_share_of_a(policy, expected, n=1500):
    """The only group of a step goes to category a as often as expected: four standard errors of n steps."""
    hits = 0
    for _ in range(n):
        hits += policy.allocate(["a1", "a2", "a3", "b1", "b2"], Budget(8, floor=0))[:3].any()
        policy.observe([], [])
    assert abs(hits / n - expected) < 4 * sqrt(expected * (1 - expected) / n)


# --- DUMP ---


def test_dumps_score():
    """Exact: gain + sqrt(2 ln(n + 1) / (n_c + 1)); at the start all are equal."""
    assert upper_bounds([0.25], [7], 24)[0] == pytest.approx(0.25 + sqrt(2 * log(25) / 8), rel=1e-15)
    assert upper_bounds([0.0, 0.0], [0, 0], 0).tolist() == [0, 0]


def test_dump_remembers_the_window_only():
    policy = dump(domain_of=first, window=16)
    for _ in range(5):
        policy.observe(["a1"] * 8 + ["b1"] * 4, [0, 1] * 4 + [1] * 4)
    assert policy.memory.numbers["q:a"] == 1.0
    policy.observe(["a1"] * 8, [1] * 8)
    assert policy.memory.numbers["q:a"] == 0.5  # 8 rollouts of 0 and 8 of 1
    policy.observe(["a2"] * 12, [1] * 12)
    policy.observe(["a1"] * 2, [0, 1])
    assert policy.memory.numbers["q:a"] == 2 / 16  # 2 of 1; 12 and 2 of 0
    assert policy.memory.numbers["n:a"] == 5 * 8 + 8 + 12 + 2
    assert policy.memory.numbers["n"] == policy.memory.numbers["n:a"] + 5 * 4
    assert len(policy.memory.numbers) < 25
    for _ in range(50):
        policy.observe(["a1"] * 2 + ["b1"], [0, 1, 1])
    assert sum(key.startswith("size:") for key in policy.memory.numbers) == 8 + 16


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=30), st.integers(1, 20))
@settings(deadline=None, max_examples=50)
def test_the_window_is_the_mean_of_its_last_rollouts(steps, window):
    numbers: dict[str, float] = {"size:a:b:3": 5.0, "gain:a:b:3": 0.5}  # another category, "a:b"
    for gain, rollouts in steps:
        add_to_window(numbers, "a", gain, rollouts, window)
    rollouts = [gain for gain, n in steps for _ in range(n)]
    assert numbers["q:a"] == pytest.approx(np.mean(rollouts[-window:]), abs=1e-12)
    assert len(numbers) <= 2 + 2 + 2 * window
    assert numbers["size:a:b:3"] == 5.0


def test_dump_draws_by_the_softmax_of_its_bounds():
    """Computed from the formula; 1,500 steps of one group each, four standard errors."""
    policy = dump(domain_of=first, temperature=0.5)
    for _ in range(30):
        policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)
    score = np.array([0.0, 1.0]) + sqrt(2 * log(481) / 241)
    expected = exp(score[0] / 0.5) / sum(exp(x / 0.5) for x in score)
    assert_share_of_a(policy, expected)


def test_dump_tries_a_category_that_it_does_not_know():
    policy = dump(domain_of=first, seed=0)
    for _ in range(10):
        policy.observe(["a1"] * 8, [0, 1] * 4)
    # 1 + sqrt(2 ln 81 / 81) = 1.33 against sqrt(2 ln 81) = 2.96: exp(-16) for the known one
    assert policy.allocate(["a1", "b1"], Budget(8, floor=0)).tolist() == [0, 8]


# --- SEC ---


def test_secs_running_mean():
    """Exact: Q = 0, then 1/2 (1) + 1/2 (0) = 1/2, then 3/4; a category not rolled out stays."""
    policy = sec(domain_of=first)
    policy.observe(["a1", "a1", "b1", "b1"], [0, 1, 1, 1])
    assert policy.memory.numbers == {"q:a": 0.5, "q:b": 0.0}
    policy.observe(["a1", "a1"], [0, 1])
    policy.observe(["b1", "b1"], [np.nan, np.nan])
    assert policy.memory.numbers == {"q:a": 0.75, "q:b": 0.0}
    policy.observe(["a1"] * 2 + ["a2"] * 6, [0, 1] + [1] * 6)  # 2 rollouts of 1 and 6 of 0
    assert policy.memory.numbers["q:a"] == 0.5 * 0.25 + 0.5 * 0.75


def test_sec_draws_by_the_softmax_of_q():
    policy = sec(domain_of=first, temperature=0.5)
    for _ in range(60):
        policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)
    assert_share_of_a(policy, 1 / (1 + exp(2)))


# --- both ---


@each_method
def test_groups_go_to_the_prompts_drawn_and_the_rest_to_one_more(make):
    counts_P = make(domain_of=levels, group=8).allocate(range(30), Budget(8 * 5 + 3, floor=0))
    assert sorted(counts_P[counts_P > 0].tolist()) == [3, 8, 8, 8, 8, 8]
    counts_P = make(domain_of=levels, group=6).allocate(range(10), Budget(10 * 2 + 3 * 4, floor=2))
    assert sorted(counts_P.tolist()) == [2] * 7 + [6] * 3


@each_method
def test_prompts_of_a_category_are_drawn_equally_often(make):
    policy, met = make(domain_of=levels), np.zeros(40)
    for _ in range(100):
        counts_P = policy.allocate(range(40), Budget(64, floor=0))
        met += counts_P > 0
        policy.observe(np.repeat(np.arange(40), counts_P), np.arange(64) % 2)
    assert met.sum() == 800
    assert met.min() >= 8  # 20 on average, standard deviation 4
    assert met.max() <= 36


@each_method
def test_categories_without_signal_are_drawn_rarely(make):
    policy, groups = make(domain_of=levels), np.zeros(3)
    for step in range(160):
        counts_P = policy.allocate(range(40), Budget(64, floor=0))
        ids_R = np.repeat(np.arange(40), counts_P)
        policy.observe(ids_R, (ids_R % 3 == 0) & (np.arange(64) % 2 == 0))
        if step >= 80:
            groups += np.bincount(np.arange(40) % 3, weights=counts_P > 0)
    assert groups.min() >= 2
    assert groups[0] > 4 * groups[1:].max()


@each_method
def test_tokens_are_kept_and_cheap_prompts_are_not_preferred(make):
    policy, opened = make(domain_of=levels, group=4), np.zeros(9)
    costs_P = np.repeat([1.0, 2.0, 4.0], 3)  # each category has each cost
    for _ in range(150):
        counts_P = policy.allocate(range(9), Budget(None, tokens=60, floor=0, cap=4), costs_P=costs_P)
        assert counts_P @ costs_P <= 60
        opened += counts_P == 4
        policy.observe([], [])
    assert opened[6:].sum() > 0.5 * opened[:3].sum()
    both, rollouts = (policy.allocate(range(9), Budget(12, n, floor=0, cap=4), costs_P=costs_P) for n in (60, None))
    assert both.tolist() == rollouts.tolist()  # a limit that does not bind changes no choice


@each_method
def test_categories_of_the_same_text_are_one(make):
    policy = make(domain_of=lambda prompt: 1 if prompt == "x" else "1")
    policy.observe(["x", "x", "y", "y"], [0, 1, 1, 1])
    assert [key for key in policy.memory.numbers if key.startswith("q:")] == ["q:1"]
