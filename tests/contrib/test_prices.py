"""Costs of groups, the group sizes that follow, and decisions under costs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import Budget, InputError, StateError
from budgetalloc.contrib.prices import Seconds, aged, tokens
from budgetalloc.policies.adaptive import sampled
from budgetalloc.policies.composition import least_groups, per_cost

BUDGET = Budget(rollouts=64, floor=0, min_group=1)


def costing(prompt, rollout):
    """Costs of these prompts, by id, as a function for `Policy.begin`."""
    return lambda ids_P, belief_P: (np.array([prompt[x] for x in ids_P]), np.array([rollout[x] for x in ids_P]))


def expected_counts(policy, ids, budget, costs, steps=300):
    """Mean counts over the draws of many steps; nothing is observed."""
    total = np.zeros(len(ids))
    for _ in range(steps):
        step = policy.begin(ids, budget, costs)
        total += step.request()
        step.end()
    return total / steps


# --- groups ---


@given(st.floats(0, 1e5), st.floats(1, 1e4), st.integers(1, 4), st.integers(8, 64))
def test_the_smallest_group_is_near_the_best_of_two_stage_sampling(prompt, rollout, min_group, cap):
    """Brute force: the group that buys the least variance (1 + 1/n) per cost; a power of two is within sqrt(2)."""
    budget = Budget(256, floor=0, min_group=min_group, cap=cap)
    least = int(least_groups(np.array([prompt]), np.array([rollout]), budget)[0])
    sizes = np.arange(min_group, cap + 1)
    waste = (1 + 1 / sizes) * (prompt + rollout * sizes)  # variance of a mean times cost, for a fixed number of groups
    best = waste.min()
    assert budget.smallest_group <= least <= budget.largest_group
    assert waste[least - min_group] <= 1.14 * best or least == 2 ** int(np.log2(cap))


def test_groups_are_multiples_of_the_quantum():
    budget = Budget(60, floor=0, min_group=1, quantum=3)
    assert least_groups(np.array([0.0, 160.0, 640.0]), np.full(3, 10.0), budget).tolist() == [3, 6, 9]


# --- values per cost ---


@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0, 50), st.floats(0.1, 9)), min_size=1, max_size=6))
def test_values_per_cost_stay_concave_from_the_smallest_group_on(prompts):
    rates, once, each = (np.array(x) for x in zip(*prompts, strict=True))
    counts_N = Budget(64, floor=0, min_group=2, cap=32).grid()
    values_PN = per_cost(ba.mixed_group, (once, each))(ba.Point(rates), counts_N)
    slopes = np.diff(values_PN, axis=1) / np.diff(counts_N)
    assert (values_PN[:, 0] == 0).all()
    assert (np.diff(slopes, axis=1) <= 1e-9 * (1 + slopes[:, :1])).all()
    # The first slope is the most that any group of the prompt buys for its cost.
    plain_PN = ba.mixed_group(ba.Point(rates), counts_N)[:, 1:]
    bought = plain_PN / ((once[:, None] + each[:, None] * counts_N[1:]) / each.mean())
    assert slopes[:, 0] == pytest.approx(bought.max(axis=1), rel=1e-5)


def test_greedy_on_values_per_cost_is_the_best_of_all_counts():
    """Brute force over all counts, in the values' own sum."""
    belief, budget = ba.Point([0.5, 0.3, 0.2]), Budget(9, floor=0, min_group=2, cap=6)
    values_PN = per_cost(ba.mixed_group, (np.zeros(3), np.array([1.0, 2.0, 5.0])))(belief, budget.grid())
    grid = budget.grid().tolist()
    every = [x for x in itertools.product(range(len(grid)), repeat=3) if sum(grid[k] for k in x) == 9]
    best = max(sum(values_PN[row, k] for row, k in enumerate(x)) for x in every)
    counts_P = ba.greedy(values_PN, None, budget)
    assert sum(values_PN[row, grid.index(n)] for row, n in enumerate(counts_P.tolist())) == pytest.approx(best)


# --- policies ---


@pytest.mark.parametrize("make", [ba.adaptive, sampled, ba.knapsack, ba.thompson])
@pytest.mark.parametrize("min_group", [1, 2])
def test_equal_costs_change_no_decision(make, min_group):
    ids, budget = list(range(60)), Budget(96, floor=0, min_group=min_group, cap=16)
    one, other = make(seed=3), make(seed=3)
    for policy in (one, other):
        policy.observe(np.repeat(np.arange(40), 4), np.arange(160) % 3 == 0)
    alike = costing(dict.fromkeys(ids, 0.0), dict.fromkeys(ids, 7.0))
    for _ in range(3):
        assert (one.allocate(ids, budget) == other.allocate(ids, budget, alike)).all()
        assert (one.allocate(ids, budget) == other.allocate(ids, budget, [7.0] * 60)).all()
        for policy in (one, other):
            policy.observe([0], [1])


@pytest.mark.parametrize(("prompt", "rollout", "ratio"), [(0.0, 400.0, 2.0), (400.0, 100.0, 3**0.5)])
def test_counts_are_in_proportion_to_the_root_of_the_cost(prompt, rollout, ratio):
    """Of equal beliefs: a rollout that costs four times as much; a group of 2 that shares a prompt of 4 rollouts."""
    ids = list(range(100))
    costs = costing({n: prompt if n % 2 else 0.0 for n in ids}, {n: rollout if n % 2 else 100.0 for n in ids})
    mean_P = expected_counts(sampled(seed=0), ids, BUDGET, costs)
    assert mean_P[::2].sum() / mean_P[1::2].sum() == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize("make", [ba.adaptive, sampled])
def test_long_prompts_favour_groups_and_short_ones_singles(make):
    ids = list(range(200))
    prompt = {n: 1600.0 if n < 100 else 10.0 for n in ids}
    policy = make(seed=0)
    policy.observe(np.repeat(ids, 8), np.tile([0, 1], 800))
    budget = Budget(256, floor=0, min_group=1, cap=64)
    counts_P = policy.allocate(ids, budget, costing(prompt, dict.fromkeys(ids, 100.0)))
    long, short = counts_P[:100], counts_P[100:]
    assert long[long > 0].min() == 4
    assert short[short > 0].min() == 1


@pytest.mark.parametrize(
    ("costs", "text"),
    [
        (lambda ids, belief: np.ones(3), "The costs are .* return two arrays"),
        (lambda ids, belief: 3.0, "The costs are 3.0: return two arrays"),
        (lambda ids, belief: ([0.0, -1.0], [1.0, 1.0]), "prompt costs are .* at least 0"),
        (lambda ids, belief: ([0.0, 0.0], [1.0, 0.0]), "costs_P=.* positive number"),
        (lambda ids, belief: ([0.0], [1.0, 1.0]), "prompt costs are"),
    ],
)
def test_bad_costs_are_named(costs, text):
    with pytest.raises(InputError, match=text):
        ba.adaptive().allocate(["a", "b"], BUDGET, costs)


# --- seconds ---


def steps_of(true, rng, steps=60, noise=0.0):
    """A fit to steps of 64 rollouts whose seconds are these prices times their quantities."""
    seconds = Seconds()
    for _ in range(steps):
        each = rng.integers(1_000, 9_000)
        row = np.array([64, each // rng.integers(1, 9), each, rng.integers(1_000, 9_000)], dtype=float)
        seconds.learn(row, float(row @ true) * (1 + noise * rng.standard_normal()))
    return seconds


@pytest.mark.parametrize("true", [[0, 0.1, 0.0, 1.0], [9.0, 0.0, 0.0, 0.2], [0.0, 0.0, 0.5, 0.5], [5.0, 0.3, 0.2, 0.1]])
def test_true_prices_are_found(true):
    true = 0.001 * np.array(true)
    fit = steps_of(true, np.random.default_rng(0), noise=0.03)
    row = np.array([64, 2_000, 5_000, 5_000])
    assert (fit.prices * row).sum() == pytest.approx((true * row).sum(), rel=0.05)
    assert fit.prices * row == pytest.approx(true * row, abs=0.12 * float(true @ row))  # in shares of a step


def test_before_any_step_prices_are_a_guess_and_units_do_not_matter():
    once_P, each_P = Seconds()(np.array([100.0]), np.array([50.0]))
    assert once_P.tolist() == [10.0]
    assert each_P.tolist() == [61.0]
    fits = [steps_of(0.001 * np.ones(4) * unit, np.random.default_rng(2)).prices for unit in (1, 1000)]
    assert fits[1] == pytest.approx(1000 * fits[0])


@pytest.mark.parametrize("true", [[1e-3, 1e-4, 1e-4, 1e-3], [0.04, 0, 0, 0], [0.01, 4e-4, 2e-4, 1e-4], [0, 0, 0, 1e-3]])
@pytest.mark.parametrize(("steps", "usually", "always"), [(20, 1.25, 1.6), (60, 1.1, 1.2)])
def test_stalls_of_one_step_in_20_do_not_move_prices(true, steps, usually, always):
    """100 runs in which every 20th step takes ten times as long. The costs of short and long prompts and answers, in
    groups of 2, are within the factor `always` of the truth, and within `usually` in nine runs of ten."""
    prompts, answers = np.array([20.0, 20.0, 200.0, 200.0]), np.array([20.0, 200.0, 20.0, 200.0])
    real = true[0] + prompts * (true[1] / 2 + true[2]) + answers * true[3]
    off = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        prompt, answer, group = rng.integers((1_000, 1_000, 1), (9_000, 9_000, 9), (steps, 3)).T
        rows = np.column_stack([np.full(steps, 64), prompt // group, prompt, answer])
        took = rows @ true * np.exp(0.03 * rng.standard_normal(steps))
        took[rng.integers(20) :: 20] *= 10
        fit = Seconds(np.column_stack([rows, took]))
        assert (fit.prices > 0).all()
        once_P, each_P = fit(prompts, answers)
        off.append(np.exp(np.abs(np.log((once_P / 2 + each_P) / real)).max()))
    assert np.quantile(off, 0.9) < usually
    assert max(off) < always


@given(st.lists(st.tuples(*[st.floats(allow_nan=True)] * 5), max_size=12), st.integers(0, 12))
@settings(deadline=None)
def test_prices_are_positive_and_finite_whatever_is_learned(steps, usual):
    fit = Seconds()
    for *quantities, seconds in [(64.0, 100.0, 300.0, 900.0, 2.0)] * usual + steps:
        fit.learn(quantities, seconds)
        assert ((fit.prices > 0) & np.isfinite(fit.prices)).all()


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, np.inf])
def test_an_impossible_step_changes_nothing(seconds):
    fit = steps_of(0.001 * np.ones(4), np.random.default_rng(0))
    before = fit.prices.copy()
    fit.learn([64, 1_000, 4_000, 9_000], seconds)
    fit.learn([64, 0, 4_000, 9_000], 1.0)
    assert (fit.prices == before).all()
    assert len(fit.steps) == 60


def test_the_last_64_steps_are_remembered():
    """A machine that is twice as fast from some step on."""
    rng, fit = np.random.default_rng(0), Seconds()
    for step in range(164):
        row = np.array([64, 1_000, 4_000, rng.integers(1_000, 9_000)])
        fit.learn(row, row[3] * (0.002 if step < 100 else 0.001))
    assert fit.steps.shape == (64, 5)
    assert fit.prices[3] == pytest.approx(0.001, rel=0.05)


def test_the_state_of_seconds_is_restored_or_refused():
    fit, copy = steps_of(0.001 * np.ones(4), np.random.default_rng(3)), Seconds()
    copy.load_state_dict(fit.state_dict())
    assert (copy.prices == fit.prices).all()
    fit.learn([64, 1_000, 4_000, 9_000], 3.0)
    copy.learn([64, 1_000, 4_000, 9_000], 3.0)
    assert (copy.prices == fit.prices).all()
    for bad in (None, np.zeros((2, 2)), np.ones((6, 6)), np.zeros((1, 5)), np.full((6, 5), np.nan)):
        with pytest.raises(StateError, match="prices in seconds"):
            copy.load_state_dict({} if bad is None else {"seconds": bad})
    assert (copy.prices == fit.prices).all()
    copy.load_state_dict(Seconds().state_dict())
    assert (copy.prices == Seconds().prices).all()


# --- age ---


def test_old_rollouts_are_worth_less_and_a_share_of_one_changes_nothing():
    """A prompt of long answers gets fewer rollouts than by tokens alone."""
    counts = {}
    for keep in (1.0, 0.8):
        session = ba.Session(ba.adaptive(seed=0), ["reward"], pool=["short", "long"], cost=aged(tokens, 500, keep))
        total = np.zeros(2)
        for step in range(60):
            session.begin([], rollouts=16, group=4)
            ids_R = session.request()
            lengths_R = [500 if name == "short" else 2000 for name in ids_R]
            session.observe(ids_R, [(step + at) % 2 for at in range(16)], lengths_R)
            session.end()
            total += [ids_R.count("short"), ids_R.count("long")]
        counts[keep] = total / total.sum()
    plain = tokens(np.ones(2), np.array([5.0, 7.0]))
    assert np.array_equal(aged(tokens, 500, 1.0)(np.ones(2), np.array([5.0, 7.0])), plain)
    assert counts[0.8][1] < 0.8 * counts[1.0][1]


@pytest.mark.parametrize(
    ("given", "message"),
    [((0, 0.9), "tokens_per_step=0"), ((math.inf, 0.9), "tokens_per_step"), ((10, 0.0), "keep=0"), ((10, 1.5), "keep")],
)
def test_an_age_out_of_range_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        aged(tokens, *given)
