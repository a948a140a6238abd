"""The greedy solver: the budget is conserved, and the value is checked by enumeration and an independent bound."""

import importlib
import itertools
import re
from unittest import mock

import numpy as np
import pytest
from budgets import budgets
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Beta, Budget, BudgetError, Point, UnsupportedError, greedy

module = importlib.import_module("budgetalloc.solvers.greedy")
best_counts = module.best_counts
CONCAVE = [ba.mixed_group, ba.pass_at_n, ba.variance, ba.success_gain]


@st.composite
def problems(draw, max_prompts=6, most=40, values=("concave", "monotone")):
    """A budget, and values for each of its counts: one of budgetalloc's, or any that does not fall."""
    prompts = draw(st.integers(1, max_prompts))
    budget = draw(budgets(prompts, floors=range(5), most=most, highest_cap=12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    grid = budget.grid()
    if draw(st.sampled_from(values)) == "concave":
        p = rng.random(prompts) if draw(st.booleans()) else rng.choice([0.0, 0.1, 0.5, 1.0], prompts)
        return draw(st.sampled_from(CONCAVE))(Point(p), grid), budget
    gains = rng.random((prompts, grid.size)) ** draw(st.sampled_from([1, 8]))
    gains[:, 0] = 0
    return np.cumsum(gains, axis=1), budget


def check_counts(counts_P, budget, prompts):
    """The contract of every solver."""
    assert counts_P.shape == (prompts,)
    assert counts_P.dtype == np.int64
    assert np.isin(counts_P, budget.grid()).all()  # floor, cap, quantum and min_group
    if budget.rollouts is not None:
        assert counts_P.sum() == budget.rollouts


def total(values_PN, counts_P, budget):
    return float(values_PN[np.arange(len(counts_P)), np.searchsorted(budget.grid(), counts_P)].sum())


def brute(values_PN, budget, costs_P=None):
    """The best value of all counts that hold, by a table over what is spent; exact for any values and integer costs."""
    limit = budget.rollouts if costs_P is None else int(budget.tokens)
    costs = np.ones(len(values_PN), dtype=int) if costs_P is None else np.asarray(costs_P)
    best = {0: 0.0}
    for values, cost in zip(values_PN, costs, strict=True):
        longer: dict[int, float] = {}
        for spent, value in best.items():
            for n, v in zip(budget.grid().tolist(), values.tolist(), strict=True):
                key = spent + n * int(cost)
                if key <= limit and value + v > longer.get(key, -np.inf):
                    longer[key] = value + v
        best = longer
    return best[limit] if costs_P is None else max(best.values())


def hull_bound(values_PN, budget, costs_P=None):
    """The linear relaxation, from the upper hull of each prompt's values, and the gain of its largest block."""
    counts_N = budget.grid()
    costs = np.ones(len(values_PN)) if costs_P is None else np.asarray(costs_P, dtype=float)
    left = (budget.rollouts if costs_P is None else budget.tokens) - counts_N[0] * costs.sum()
    bound, blocks = 0.0, []
    for values, cost in zip(values_PN, costs, strict=True):
        bound += values[0]
        here = 0
        while here < len(counts_N) - 1:
            slopes = (values[here + 1 :] - values[here]) / (counts_N[here + 1 :] - counts_N[here])
            there = here + 1 + int(np.flatnonzero(slopes >= slopes.max() - 1e-13)[-1])
            size = (counts_N[there] - counts_N[here]) * cost
            blocks.append(((values[there] - values[here]) / size, size))
            here = there
    blocks.sort(reverse=True)
    for slope, size in blocks:
        bound += slope * min(size, left)
        left -= min(size, left)
    return bound, max((slope * size for slope, size in blocks), default=0.0)


# --- rollouts ---


@given(problems(max_prompts=4, most=14), st.sampled_from([0, 100, 500]))
@settings(max_examples=400, deadline=None)
def test_greedy_is_within_one_block_for_any_values_and_exact_for_concave_ones(problem, most_work):
    """Also where the problem is too large for the exact search, which then takes some of its prompts or none."""
    values_PN, budget = problem
    with mock.patch.object(module, "_MOST_WORK", most_work):
        counts_P = greedy(values_PN, None, budget)
    check_counts(counts_P, budget, len(values_PN))
    got, best = total(values_PN, counts_P, budget), brute(values_PN, budget)
    bound, block = hull_bound(values_PN, budget)
    assert got <= best + 1e-9 <= bound + 2e-9
    assert got >= best - block - 1e-9
    if budget.fewest or budget.smallest_group == budget.quantum:  # no group has to shrink for another to open
        assert got >= bound - block - 1e-9
        gains = np.diff(values_PN, axis=1) / np.diff(budget.grid())
        assert got >= best - 1e-9 or (np.diff(gains, axis=1) > 1e-12).any()


@pytest.mark.parametrize("slopes", [[1e6, 1e6 + 1e-8, 0.0], [0.0, -1e6, -1e6 + 1e-8], [1.0, 1.0 + 1e-13, 0.0]])
def test_a_rise_by_rounding_error_does_not_join_steps(slopes):
    """Two prompts of equal values: the four rollouts are spread, and would not be if two steps were one block."""
    values_PN = np.array([[0.0, *np.cumsum(slopes)]] * 2)
    assert greedy(values_PN, None, Budget(6, floor=1, min_group=1, cap=4)).tolist() == [3, 3]
    assert greedy(values_PN, None, Budget(4, floor=1, min_group=1, cap=4)).tolist() == [2, 2]


@pytest.mark.parametrize("value", [ba.mixed_group, ba.success_gain], ids=lambda v: v.__name__)
@pytest.mark.parametrize("budget", [Budget(rollouts=512, floor=2, cap=32), Budget(rollouts=96, floor=0, cap=16)])
def test_greedy_equals_highs_at_size(value, budget):
    """Where prompts are chosen, to within a block."""
    rng = np.random.default_rng(3)
    values_PN = value(Beta(rng.uniform(0.5, 9, 64), rng.uniform(0.5, 9, 64)), budget.grid())
    best = ba.certify(values_PN, None, budget, time_limit=20)
    block = hull_bound(values_PN, budget)[1] if budget.fewest == 0 else 0.0
    assert best.bound - block - 1e-6 <= total(values_PN, greedy(values_PN, None, budget), budget) <= best.bound + 1e-6


@given(problems(max_prompts=6, most=20))
@settings(max_examples=400, deadline=None)
def test_greedy_is_exact_for_small_problems_of_any_values(problem):
    values_PN, budget = problem
    got = total(values_PN, greedy(values_PN, None, budget), budget)
    assert got == pytest.approx(brute(values_PN, budget), abs=1e-9)


@pytest.mark.parametrize("value", [ba.mixed_group, ba.success_gain], ids=lambda v: v.__name__)
def test_greedy_reaches_the_bound_of_large_problems_with_groups_of_one(value):
    """The hull's bound, which no counts exceed; without the exact search up to 0.4 % were missing."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        budget = Budget(257, floor=0, min_group=1, cap=32)
        values_PN = value(Point(rng.beta(2, 2, 256)), budget.grid())
        bound, _ = hull_bound(values_PN, budget)
        assert total(values_PN, greedy(values_PN, None, budget), budget) == pytest.approx(bound, rel=1e-9)


@given(
    st.integers(1, 4),
    st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_the_counts_are_the_best_of_all_that_sum_to_the_rollouts(prompts, counts, unit, seed):
    rng, counts_N = np.random.default_rng(seed), unit * np.sort(counts)
    values_PN = rng.normal(size=(prompts, len(counts)))
    rollouts = int(rng.choice(counts_N, prompts).sum())  # a sum that can be spent
    best_P = best_counts(values_PN, counts_N, rollouts)
    assert best_P.sum() == rollouts
    every = [x for x in itertools.product(range(len(counts)), repeat=prompts) if counts_N[list(x)].sum() == rollouts]
    got = values_PN[np.arange(prompts), np.searchsorted(counts_N, best_P)].sum()
    assert got == pytest.approx(max(values_PN[np.arange(prompts), list(x)].sum() for x in every), abs=1e-12)


# --- tokens ---


@st.composite
def token_problems(draw):
    prompts = draw(st.integers(1, 4))
    floor = draw(st.sampled_from([0, 0, 1, 2]))
    budget = Budget(
        rollouts=None,
        tokens=draw(st.integers(1, 120)),
        floor=floor,
        cap=draw(st.integers(4, 7)),
        min_group=draw(st.integers(1, floor or 3)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    costs_P = rng.integers(1, 9, prompts)
    assume(budget.grid()[0] * costs_P.sum() <= budget.tokens)
    if draw(st.booleans()):
        return draw(st.sampled_from(CONCAVE))(Point(rng.random(prompts)), budget.grid()), costs_P, budget
    return np.cumsum(rng.random((prompts, budget.grid().size)) ** 6, axis=1), costs_P, budget


@given(token_problems())
@settings(max_examples=300, deadline=None)
def test_tokens_are_never_exceeded_and_the_value_is_within_one_block(problem):
    values_PN, costs_P, budget = problem
    counts_P = greedy(values_PN, costs_P, budget)
    check_counts(counts_P, budget, len(values_PN))
    assert counts_P @ costs_P <= budget.tokens
    got = total(values_PN, counts_P, budget)
    best = brute(values_PN, budget, costs_P)
    bound, block = hull_bound(values_PN, budget, costs_P)
    assert bound - block - 1e-9 <= got <= best + 1e-9 <= bound + 2e-9


def test_a_floor_beyond_the_tokens_names_tokens_that_would_do():
    budget = Budget(rollouts=None, tokens=1000, cap=8)
    costs_P = np.array([333.4, 1234567.25])
    values_PN = ba.pass_at_n(Point([0.5, 0.5]), budget.grid())
    with pytest.raises(BudgetError, match=r"floor=2 costs .* tokens. Use tokens=(\d+) or more") as caught:
        greedy(values_PN, costs_P, budget)
    enough = int(re.search(r"Use tokens=(\d+)", str(caught.value))[1])
    assert greedy(values_PN, costs_P, Budget(rollouts=None, tokens=enough, cap=8)).tolist() == [2, 2]
    with pytest.raises(BudgetError):
        greedy(values_PN, costs_P, Budget(rollouts=None, tokens=enough - 1, cap=8))


# --- refusals ---


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (Budget(rollouts=8, tokens=100.0, cap=4), "greedy spends one resource. Use solver=highs"),
        (Budget(None, tokens=8.0, cap=4, quotas={"a": (0, 4)}), "Use solver=highs"),
    ],
)
def test_an_unsupported_limit_names_the_solver_that_supports_it(budget, text):
    with pytest.raises(UnsupportedError, match=re.escape(text)):
        greedy(np.zeros((2, 3)), [1, 1], budget)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]), st.integers(0, 3)), min_size=1, max_size=40),
    st.integers(0, 60),
    st.integers(1, 9),
)
def test_blocks_that_fit_are_those_of_a_stable_sort(blocks, left, few):
    gains_K, sizes_K = (np.array(x) for x in zip(*blocks, strict=True))
    order = np.argsort(-gains_K, kind="stable")
    fits = int((np.cumsum(sizes_K[order]) <= left).sum())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", few)
        taken, rest, first = module._fitting(gains_K, sizes_K, left)
        portion_K = module._portions(gains_K, sizes_K, left)
    assert sorted(taken) == sorted(order[:fits])
    assert rest == left - sizes_K[order[:fits]].sum()
    assert first == order[min(fits, len(order) - 1)]
    assert portion_K.sum() == min(left, sizes_K.sum())
    assert (portion_K[order[:fits]] == sizes_K[order[:fits]]).all()
    assert not portion_K[order[fits + 1 :]].any()
