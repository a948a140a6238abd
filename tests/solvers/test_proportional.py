"""Proportional shares, rounded or drawn: the budget is conserved, and a count is close to its share."""

import re

import numpy as np
import pytest
from budgets import budgets
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, BudgetError, InputError, UnsupportedError, proportional
from budgetalloc.solvers.proportional import clipped_shares, largest_remainder, systematic, systematic_in_groups

weight = st.one_of(st.just(0.0), st.floats(1e-3, 1e3), st.sampled_from([1.0, 2.0]))


@given(weights=st.lists(weight, min_size=1, max_size=8), data=st.data())
@settings(max_examples=300, deadline=None)
def test_the_budget_is_spent_exactly_and_heavier_prompts_get_no_less(weights, data):
    budget = data.draw(budgets(len(weights), floors=range(5), most=40, highest_cap=12))
    counts_P = proportional(weights, None, budget)
    assert counts_P.shape == (len(weights),)
    assert counts_P.dtype == np.int64
    assert np.isin(counts_P, budget.grid()).all()
    assert counts_P.sum() == budget.rollouts
    weights_P = np.array(weights)
    heavier_PP = weights_P[:, None] > weights_P[None, :]
    assert (counts_P[:, None] >= counts_P[None, :])[heavier_PP].all()


@pytest.mark.parametrize(
    ("weights", "budget", "counts"),
    [
        ([100, 4, 3], Budget(24, floor=2, cap=10), [10, 8, 6]),  # the rest goes to the others in proportion
        (np.zeros(5), Budget(22), [5, 5, 4, 4, 4]),
        ([8, 8, 1, 0], Budget(16, floor=0, min_group=4), [8, 8, 0, 0]),
        ([1, 1, 1], Budget(2, floor=0, min_group=1), [1, 1, 0]),
        ([2, 1], Budget(3, floor=0, min_group=1), [2, 1]),  # the lighter share is exactly a group
        # Half of the rollouts is less than a group by less than the tolerance.
        ([1, 1], Budget(2**40 - 1, floor=0, min_group=2**39), [2**40 - 1, 0]),
        *(([3 * scale, scale], Budget(8, floor=0, min_group=1), [6, 2]) for scale in (1e-12, 1e-3, 1e12)),
    ],
)
def test_counts_by_hand(weights, budget, counts):
    assert proportional(weights, None, budget).tolist() == counts


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=10), st.integers(0, 3), st.integers(0, 9), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_clipped_shares_are_proportional_between_their_bounds(weights, low, room, place):
    high = low + 1 + room
    total = round(len(weights) * (low + place * (high - low)))
    weights_P = np.array(weights)
    assume(total > 0)
    shares_P = clipped_shares(weights_P, total, low, high)
    assert shares_P.sum() == pytest.approx(total, rel=1e-6)
    assert (shares_P >= low).all()
    assert (shares_P <= high).all()
    inside_P = (shares_P > low * (1 + 1e-6)) & (shares_P < high * (1 - 1e-6))
    scale_P = shares_P[inside_P] / weights_P[inside_P]
    assert scale_P == pytest.approx(scale_P[:1].repeat(scale_P.size), rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "total", "low", "high", "counts"),
    [
        ([1], 2**53 + 3, 0, 2**60, [2**53 + 3]),  # one too many as a float
        ([1, 2], 3 * 2**53 - 2, 2**53, 2**60, [2**53, 2**54 - 2]),  # two too many, but the first is at its lowest
        ([2, 1], 3 * 2**53 + 2, 0, 2**54, [2**54, 2**53 + 2]),  # two too few, but the first is at its highest
    ],
)
def test_totals_beyond_the_precision_of_floats_are_exact(weights, total, low, high, counts):
    assert largest_remainder(np.array(weights, dtype=float), total, low, high).tolist() == counts


ROLLOUTS, RNG = Budget(rollouts=8), np.random.default_rng(0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: proportional([1, -1], None, ROLLOUTS), InputError, "weights_P=[1, -1]"),
        (lambda: proportional([1, np.nan], None, ROLLOUTS), InputError, "weights_P=[1, nan]"),
        (lambda: proportional([1, np.inf], None, ROLLOUTS), InputError, "weights_P=[1, inf]"),
        (lambda: proportional([], None, ROLLOUTS), InputError, "weights_P=[]"),
        (lambda: proportional([[1]], None, ROLLOUTS), InputError, "weights_P=[[1]]"),
        (lambda: proportional([1, 1], None, Budget(None, tokens=100.0, cap=4)), UnsupportedError, "tokens=100.0"),
        (lambda: proportional([1, 1], None, Budget(8, tokens=100.0, cap=4)), UnsupportedError, "tokens=100.0"),
        (lambda: proportional([1, 1], None, Budget(8, quotas={"a": (0, 4)})), UnsupportedError, "rollouts only"),
        (lambda: proportional([1, 1], [1, 1], ROLLOUTS), UnsupportedError, "rollouts only"),
        (lambda: proportional(np.ones(8), None, Budget(16, floor=4)), BudgetError, "need 32 rollouts"),
        (lambda: proportional([1], None, 8), InputError, "budget=8"),
        (lambda: systematic([1, -1], ROLLOUTS, RNG), InputError, "weights_P=[1, -1]"),
        (lambda: systematic([1], None, RNG), InputError, "budget=None"),
        *((lambda rng=rng: systematic([1], ROLLOUTS, rng), InputError, "rng=") for rng in (None, 3)),
    ],
)
def test_bad_input_is_named(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call()


weights = st.lists(st.sampled_from([0.0, 1e-9, 0.1, 0.5, 1.0, 7.0]), min_size=1, max_size=12)


@given(weights=weights, seed=st.integers(0, 99), data=st.data())
@settings(max_examples=400, deadline=None)
def test_a_draw_spends_the_budget_exactly_in_groups_that_it_allows(weights, seed, data):
    budget = data.draw(budgets(len(weights)))
    counts = systematic(weights, budget, np.random.default_rng(seed))
    assert counts.sum() == budget.rollouts
    assert set(counts.tolist()) <= {0, *budget.grid().tolist()}


@given(weights=weights, rollouts=st.integers(1, 40), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_a_count_is_its_share_rounded_down_or_up(weights, rollouts, seed):
    assume(any(weights))
    share = np.array(weights) / sum(weights) * rollouts
    counts = systematic(weights, Budget(rollouts, floor=0, min_group=1), np.random.default_rng(seed))
    assert (counts >= np.floor(share - 1e-6)).all()
    assert (counts <= np.ceil(share + 1e-6)).all()


@pytest.mark.parametrize("budget", [Budget(7, floor=0, min_group=1), Budget(9, floor=1, min_group=1)])
def test_the_expectation_of_a_count_is_its_share(budget):
    weights = np.array([4.0, 2.0, 1.0, 0.5, 0.1])
    rng = np.random.default_rng(0)
    draws = np.array([systematic(weights, budget, rng) for _ in range(1500)])
    if budget.fewest == 0:
        share = weights / weights.sum() * 7
    else:  # the last two stand at the floor, the rest of 9 is shared
        share = np.array([4.0, 2.0, 1.0, 1.0, 1.0]) * np.array([1, 1, 1, 1, 1])
    error = 4 * np.sqrt(np.maximum(share % 1 * (1 - share % 1), 1e-9) / 1500)
    assert (np.abs(draws.mean(axis=0) - share) <= error + 1e-9).all()


class Start(np.random.Generator):
    """A generator whose one number is known."""

    def __new__(cls, start: float) -> "Start":
        return super().__new__(cls, np.random.PCG64(0))

    def __init__(self, start: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.start = start

    def random(self) -> float:
        return self.start


@pytest.mark.parametrize(
    ("weights", "budget", "start", "counts"),
    [
        # Marks at 0.4, 1.4, 2.4 and 3.4 groups of four hit all but the third. The first gets the remainder of 17.
        ([2.0, 3.75, 3.75, 3.75, 3.75], Budget(17, floor=0, min_group=4), 0.6, [5, 4, 0, 4, 4]),
        # Shares / 4 of 1.5 (which counts as 1), 0.75 and 0.75: marks at 0.4, 1.4 and 2.4 hit each of them.
        ([6, 3, 3], Budget(12, floor=0, min_group=4), 0.6, [4, 4, 4]),
        # Shares / 4 of 0.75, 0.625, 0.5, 0.375: three are hit, but 9 rollouts fill two groups.
        ([3, 2.5, 2, 1.5], Budget(9, floor=0, min_group=4), 0.8, [5, 4, 0, 0]),
        # Shares of 6 (the cap), 1 / 3 and 2 / 3: only the first is hit, and it can take 6 of 7.
        ([90, 1, 2], Budget(7, floor=0, min_group=2, cap=6), 0.0, [5, 0, 2]),
        # Two groups at the cap spend the budget.
        ([10, 10, 0.1], Budget(12, floor=0, min_group=3, cap=6), 0.0, [6, 6, 0]),
    ],
)
def test_a_draw_by_hand(weights, budget, start, counts):
    assert systematic(weights, budget, Start(start)).tolist() == counts


@pytest.mark.parametrize("start", [1 - 2.0**-53, 1 - 2.0**-40, 0.0])
@pytest.mark.parametrize("weights", [[1, 1, 1], [3, 1, 1, 2], [0.1] * 7])
def test_a_start_just_below_1_gives_no_rollout_too_many(start, weights):
    """The sum of the last end and the start may be rounded up to total + 1."""
    for total in (4, 64, 4096):
        counts_P = systematic(weights, Budget(rollouts=total, floor=0, min_group=1, cap=total), Start(start))
        assert counts_P.sum() == total


@given(
    st.lists(st.tuples(st.floats(0, 9), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 60),
    st.integers(1, 9),
    st.sampled_from([(0, 1, 1), (0, 2, 1), (0, 2, 2), (2, 2, 1), (0, 1, 3)]),
    st.integers(1, 12),
    st.integers(0, 9),
)
def test_groups_are_whole_and_the_budget_is_exact(prompts, rollouts, group, shape, cap, seed):
    floor, min_group, quantum = shape
    try:
        budget = Budget(rollouts, floor=floor, min_group=min_group, quantum=quantum, cap=cap)
        budget.check(len(prompts))
    except BudgetError:
        return
    weights_P, grouped_P = np.array([w for w, _ in prompts]) + 1e-9, np.array([ok for _, ok in prompts])
    counts_P = systematic_in_groups(weights_P, np.where(grouped_P, group, 1), budget, np.random.default_rng(seed))
    assert counts_P.sum() == rollouts
    assert set(counts_P.tolist()) <= set(budget.grid().tolist())
    least = -(-max(group, budget.smallest_group) // quantum) * quantum
    whole = counts_P[grouped_P & (counts_P > 0)]
    if whole.size and whole.min() < least:  # then groups of this size cannot hold the budget, or it has a floor
        same_P = systematic(weights_P, budget, np.random.default_rng(seed))
        again_P = systematic(weights_P, budget, after_a_number(seed))
        assert floor or counts_P.tolist() in (same_P.tolist(), again_P.tolist())


def after_a_number(seed):
    """The generator after the number that rounds the part of the grouped prompts."""
    rng = np.random.default_rng(seed)
    rng.random()
    return rng


@given(
    st.lists(st.tuples(st.floats(0.01, 9), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=12),
    st.integers(1, 100),
    st.integers(8, 16),
    st.integers(0, 9),
)
def test_groups_of_several_sizes(prompts, rollouts, cap, seed):
    weights_P, least_P = np.array([w for w, _ in prompts]), np.array([least for _, least in prompts])
    budget = Budget(rollouts, floor=0, min_group=1, cap=cap)
    if len(prompts) * cap < rollouts:
        return
    counts_P = systematic_in_groups(weights_P, least_P, budget, np.random.default_rng(seed))
    assert counts_P.sum() == rollouts
    assert counts_P.max() <= cap
    singles_P = least_P == 1
    if cap * singles_P.sum() >= rollouts:  # nothing forces a group that is smaller than wanted
        assert (counts_P[counts_P > 0] >= least_P[counts_P > 0]).all()


def test_prompts_with_groups_of_every_size_have_the_expectation_of_their_weights():
    weights_P, least_P = np.array([1.0, 2.0, 3.0, 2.0] * 10), np.array([1, 2, 4, 8] * 10)
    rng, budget = np.random.default_rng(0), Budget(40, floor=0, min_group=1)
    mean_P = np.mean([systematic_in_groups(weights_P, least_P, budget, rng) for _ in range(1500)], axis=0)
    assert mean_P.reshape(10, 4).sum(axis=0) == pytest.approx([5, 10, 15, 10], abs=0.3)
    assert mean_P == pytest.approx(weights_P / 2, rel=0.25)
