"""DUMP and SEC: what they learn of a category, and how often they draw from it."""

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget
from budgetalloc.methods.categories import draw_order, dump, sec


def first(prompt):
    return str(prompt)[0]


def but_the_last(prompt):
    return prompt[:-1]


BOTH = [dump, sec]
each_method = pytest.mark.parametrize("make", BOTH, ids=lambda make: make.__name__)


# --- the order of draws ---


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


def assert_share_of_a(policy, expected, n=1500):
    """The only group of a step goes to category a as often as expected: four standard errors of n steps."""
    hits = 0
    for _ in range(n):
        hits += policy.allocate(["a1", "a2", "a3", "b1", "b2"], Budget(8, floor=0))[:3].any()
        policy.observe([], [])
    assert abs(hits / n - expected) < 4 * sqrt(expected * (1 - expected) / n)


# --- DUMP ---


GROUP = st.lists(st.sampled_from([0.0, 1.0, np.nan]), min_size=1, max_size=5)
STEPS = st.lists(st.dictionaries(st.sampled_from(["a1", "a2", "a:b1"]), GROUP), max_size=12)


@given(STEPS, st.integers(1, 20))
@settings(deadline=None, max_examples=50)
def test_what_dump_and_sec_learn_of_a_category(steps, window):
    """DUMP: the mean gain over the last rollouts. SEC: Q <- Q/4 + 3/4 gain, after steps with rollouts of the category.

    The gain of a step is the mean |advantage| of the category's rollouts, 2 sqrt(p (1-p)) each.
    """
    both = dump(domain_of=but_the_last, window=window), sec(domain_of=but_the_last, rate=0.75)
    gains, q = {"a": [], "a:b": []}, {}
    for groups in steps:
        for policy in both:
            policy.observe([x for x, rs in groups.items() for _ in rs], [r for rs in groups.values() for r in rs])
        for c, seen in gains.items():
            own = [[r for r in rs if r == r] for x, rs in groups.items() if but_the_last(x) == c]
            own = [2 * sqrt(np.mean(rs) * (1 - np.mean(rs))) for rs in own if rs for _ in rs]
            if own:
                q[f"q:{c}"] = 0.25 * q.get(f"q:{c}", 0.0) + 0.75 * np.mean(own)
                seen += [np.mean(own)] * len(own)
    numbers = both[0].memory.numbers
    for c, seen in gains.items():
        assert numbers.get(f"q:{c}", 0.0) == pytest.approx(np.mean(seen[-window:] or [0.0]), abs=1e-12)
        assert numbers.get(f"n:{c}", 0.0) == len(seen)
    assert numbers.get("n", 0.0) == sum(map(len, gains.values()))
    assert sum(key.startswith("size:") for key in numbers) <= 2 * window
    assert both[1].memory.numbers == pytest.approx(q)


def test_dump_draws_by_the_softmax_of_its_bounds():
    """Computed from the formula; 1,500 steps of one group each, four standard errors."""
    policy = dump(domain_of=first, temperature=0.5)
    for _ in range(30):
        policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)
    score = np.array([0.0, 1.0]) + sqrt(2 * log(481) / 241)
    expected = exp(score[0] / 0.5) / sum(exp(x / 0.5) for x in score)
    assert_share_of_a(policy, expected)


# --- both ---


@each_method
def test_categories_of_the_same_text_are_one(make):
    policy = make(domain_of=lambda prompt: 1 if prompt == "x" else "1")
    policy.observe(["x", "x", "y", "y"], [0, 1, 1, 1])
    assert [key for key in policy.memory.numbers if key.startswith("q:")] == ["q:1"]
