"""CERO: slopes, the price, and all the rollouts that a prompt ever had."""

import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budgetalloc import Beta, Budget
from budgetalloc.methods import cero


def test_the_price_rises_by_what_was_wanted_and_not_given():
    policy = cero(horizon=4, high=16)
    policy.observe(["a"] * 4 + ["b"] * 4, [0, 1] * 4)  # at price 0 each wants 16
    assert policy.memory.numbers["price"] == pytest.approx((32 - 8) / 32 / 2)
    policy.memory.numbers["price"] = 0.5
    policy.observe(["c"] * 16, [0, 1] * 8)  # slope 2/3 at z = 0, which falls as exp(-z / 96)
    wanted = 96 * math.log(4 / 3)
    assert policy.memory.numbers["price"] == pytest.approx(0.5 + (min(wanted, 16) - 16) / 16 / 2)
    policy.memory.numbers["price"] = 0.6
    policy.observe(["d"] * 16, [0, 1] * 8)
    wanted = 96 * math.log(10 / 9)  # 10.1
    assert policy.memory.numbers["price"] == pytest.approx(0.6 + (wanted - 16) / 16 / 2)
    policy.memory.numbers["price"] = 0.05
    policy.observe(["a"] * 999, [1] * 999)
    policy.observe(["a"] * 9, [1] * 9)  # wants nothing; the price does not fall below 0
    policy.observe(["a"] * 9, [1] * 9)
    assert policy.memory.numbers["price"] == 0
    policy.observe([], [])
    assert policy.memory.numbers["price"] == 0


def test_only_prompts_above_the_price_are_taken_while_they_have_room():
    policy = cero(high=8)
    policy.observe(["half"] * 32 + ["seldom"] * 32, [0, 1] * 16 + [1] + [0] * 31)
    budget = Budget(rollouts=16, floor=0)
    policy.memory.numbers["price"] = 0.0
    assert policy.allocate(["half", "seldom", "new"], budget).tolist() == [8, 0, 8]
    small = Budget(rollouts=8, floor=0)
    assert policy.allocate(["half", "seldom", "new"], small).tolist() == [0, 0, 8]
    policy.memory.numbers["price"] = 0.63  # half has 0.60, new 0.67, seldom 0.20
    assert policy.allocate(["half", "new"], budget).tolist() == [8, 8]  # new is full
    assert policy.allocate(["half", "new", "newer"], small).tolist() == [0, 4, 4]
    assert policy.allocate(["half", "seldom"], Budget(rollouts=12)).tolist() == [
        8,
        4,
    ]  # none exceeds the price: by slope
    for price, shares in ((0.0, [2, 14]), (0.63, [0, 16])):  # the slope of new falls to half's after 10.5
        roomy = cero(high=16)
        roomy.observe(["half"] * 32, [0, 1] * 16)
        roomy.memory.numbers["price"] = price
        assert roomy.allocate(["half", "new"], Budget(rollouts=16, floor=0)).tolist() == shares


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=4), st.integers(2, 14))
def test_at_price_zero_the_total_value_is_largest(evidence, rollouts):
    ids = [i for i, (s, f) in enumerate(evidence) for _ in range(s + f)]
    policy = cero(high=7)
    policy.observe(ids, [float(k < s) for s, f in evidence for k in range(s + f)])
    policy.memory.numbers["price"] = 0.0
    assume(rollouts <= 7 * len(evidence))
    counts_P = policy.allocate(range(len(evidence)), Budget(rollouts=rollouts, floor=0, min_group=1))
    q_P = Beta(*zip(*[(1 + s, 1 + f) for s, f in evidence], strict=True)).moment(1, 1)

    def worth(counts):
        return sum(1 - math.exp(-q * (s + f + n) / 16) for q, (s, f), n in zip(q_P, evidence, counts, strict=True))

    splits = itertools.product(range(8), repeat=len(evidence))
    assert worth(counts_P) >= max(worth(c) for c in splits if sum(c) == rollouts) - 1e-9
