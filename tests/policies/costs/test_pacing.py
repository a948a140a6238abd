"""How the budget moves over the horizon: exact totals, prices, and the online knapsack against hindsight."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.errors import BudgetError
from budgetalloc.policies.costs.pacing import DualPrice, Horizon, Threshold, constant, phases


@st.composite
def horizons(draw) -> Horizon:
    quantum, steps = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    low = draw(st.integers(0, 5))
    high = draw(st.none() | st.integers(max(low, 1), 12))
    portions = draw(st.integers(max(steps * low, 1), steps * (high or low + 12)))
    high = None if high is None else high * quantum
    return Horizon(rollouts=portions * quantum, steps=steps, low=low * quantum, high=high, quantum=quantum)


@settings(deadline=None, max_examples=50)
@given(horizons(), st.integers(0, 10**6))
def test_whatever_is_wished_the_total_is_exact_and_every_step_within_its_bounds(horizon, seed):
    rng = np.random.default_rng(seed)
    odd = [0.0, -5.0, math.inf, -math.inf, 1e9]
    for counts in (
        horizon.plan(
            lambda step, spent: (
                rng.choice(odd) if rng.random() < 0.3 else rng.gamma(1, horizon.rollouts / horizon.steps)
            ),
        ),
        horizon.plan(lambda step, spent: constant(horizon, step, spent)),
        horizon.plan(lambda step, spent: phases(horizon, [(2, 0.5), (3, 4.0), (1, 1.0)], step, spent)),
    ):
        assert sum(counts) == horizon.rollouts
        assert min(counts) >= horizon.low
        assert max(counts) <= (horizon.high or horizon.rollouts)
        assert all(count % horizon.quantum == 0 for count in counts)


@settings(deadline=None, max_examples=50)
@given(horizons())
def test_constant_steps_differ_by_one_portion_at_most(horizon):
    counts = horizon.plan(lambda step, spent: constant(horizon, step, spent))
    assert max(counts) - min(counts) <= horizon.quantum


def test_phases_share_by_weight():
    horizon = Horizon(rollouts=1200, steps=6)
    parts = [(2, 1), (3, 2), (1, 4)]  # exact: 1200 / (2 + 6 + 4) = 100 a unit of weight
    assert horizon.plan(lambda step, spent: phases(horizon, parts, step, spent)) == [100, 100, 200, 200, 200, 400]


def test_the_last_phase_goes_on_to_the_end_and_later_phases_are_not_reached():
    horizon = Horizon(rollouts=90, steps=5)
    assert horizon.plan(lambda step, spent: phases(horizon, [(1, 1), (1, 2)], step, spent)) == [10, 20, 20, 20, 20]
    assert horizon.plan(lambda step, spent: phases(horizon, [(9, 3), (1, 2)], step, spent)) == [18] * 5


def test_a_capped_phase_passes_its_surplus_on():
    horizon = Horizon(rollouts=100, steps=4, low=10, high=30)
    assert horizon.plan(lambda step, spent: phases(horizon, [(1, 8), (1, 1)], step, spent)) == [30, 23, 24, 23]


def test_the_price_rises_after_a_large_step_and_falls_after_a_small_one():
    horizon = Horizon(rollouts=1000, steps=100, low=0)  # a mean share of 10, a step of 1 / sqrt(100)
    assert DualPrice(price=0.5).after(15, horizon).price == pytest.approx(0.55)
    assert DualPrice(price=0.5).after(0, horizon).price == pytest.approx(0.4)
    assert DualPrice(price=0.5, scale=0.2).after(15, horizon).price == pytest.approx(0.51)
    assert DualPrice(price=0.05).after(0, horizon).price == 0.0
    bounded = Horizon(rollouts=1000, steps=100, low=8, high=12)
    assert DualPrice(price=0.5).after(10**6, bounded).price == pytest.approx(0.52)  # 12 were taken
    assert DualPrice(price=0.5).after(0, bounded).price == pytest.approx(0.48)  # 8 were


def test_a_price_of_zero_takes_what_gains_anything():
    assert DualPrice().demand([[0.2, 0.1], [0.0, -0.1]]) == 2


def test_the_price_settles_where_demand_meets_the_mean_share():
    horizon, rng = Horizon(rollouts=400 * 30, steps=400, low=0), np.random.default_rng(0)
    dual, demands = DualPrice(scale=0.5), []
    for _ in range(horizon.steps):
        demands.append(dual.demand(rng.random(100)))  # 30 of 100 uniform gains pass a price of 0.7 (exact)
        dual = dual.after(demands[-1], horizon)
    assert dual.price == pytest.approx(0.7, abs=0.1)
    assert np.mean(demands[100:]) == pytest.approx(30, abs=1)


def test_a_price_moves_rollouts_to_the_steps_where_they_gain_most():
    """Against an even share, on steps of which every fourth is worth three times the others; computed once."""
    horizon = Horizon(rollouts=200 * 32, steps=200, low=8, high=96)
    rng = np.random.default_rng(1)
    tables = [np.sort(rng.random(128) * (3 if step % 4 == 3 else 1))[::-1] for step in range(200)]
    total, dual, spent = {"even": 0.0, "price": 0.0}, DualPrice(price=0.7), 0
    for step, gains in enumerate(tables):
        demand = dual.demand(gains)
        count = horizon.fit(demand, step, spent)
        dual, spent = dual.after(demand, horizon), spent + count
        total["price"] += gains[:count].sum()
        total["even"] += gains[:32].sum()
    best = np.sort(np.concatenate(tables))[::-1][: horizon.rollouts].sum()  # no bounds of a step
    assert spent == horizon.rollouts
    assert total["even"] < 0.95 * best
    assert 0.98 * best < total["price"] <= best


def test_the_threshold_has_its_known_ends_and_rises():
    rule = Threshold(lowest=0.02, highest=0.5)
    assert rule.psi(0) == pytest.approx(0.02 / math.e)
    assert rule.psi(1) == pytest.approx(0.5)
    assert (np.diff([rule.psi(z) for z in np.linspace(0, 1, 50)]) > 0).all()
    assert rule.psi(1 / rule.ratio) == pytest.approx(0.02)  # until then everything is taken
    assert rule.ratio == pytest.approx(math.log(25) + 1)


def play(rule: Threshold, stream: list[np.ndarray], rollouts: int) -> float:
    """What the threshold takes of a stream of steps."""
    spent, taken = 0, 0.0
    for gains in stream:
        count = rule.demand(gains, spent, rollouts)
        taken += np.sort(gains)[::-1][:count].sum()
        spent += count
    assert spent <= rollouts
    return taken


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(50, 300), st.sampled_from(["random", "rising", "falling", "jump"]))
def test_the_threshold_is_competitive_with_hindsight(seed, rollouts, kind):
    rng = np.random.default_rng(seed)
    low, high = 0.1, 0.1 * rng.uniform(1, 100)
    rule = Threshold(low, high)
    gains = np.exp(rng.uniform(np.log(low), np.log(high), size=rng.integers(1, 4 * rollouts)))
    if kind == "jump":  # the worst case: enough of the worst, then enough of the best
        gains = np.repeat([low, high], rollouts)
    elif kind != "random":
        gains = np.sort(gains)[:: 1 if kind == "rising" else -1]
    stream = np.array_split(gains.clip(low, high), rng.integers(1, len(gains) + 1))
    best = np.sort(gains)[::-1][:rollouts].sum()
    rounding = math.exp(rule.ratio / rollouts)  # portions are 1 / rollouts of the budget, not infinitely small
    assert play(rule, stream, rollouts) * rule.ratio * rounding >= best * (1 - 1e-9)


def test_taking_all_that_comes_is_not_competitive():
    """The test above could fail: first come, first served breaks its bound on the worst case."""
    rule, stream = Threshold(0.1, 10.0), [np.full(100, 0.1), np.full(100, 10.0)]
    assert rule.ratio < 100 * 10.0 / (100 * 0.1)
    assert 100 * 10.0 / play(rule, stream, 100) < rule.ratio * 1.06


def test_gains_of_a_value_function_can_be_priced():
    gains = np.diff(ba.variance(ba.Point([0.5, 0.9]), np.arange(1, 9)))
    assert DualPrice(price=float(gains[0, 2])).demand(gains) == int((gains > gains[0, 2]).sum()) > 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rollouts": 100, "steps": 10, "low": 11}, "low=10"),
        ({"rollouts": 100, "steps": 10, "high": 9}, "high=10"),
        ({"rollouts": 100, "steps": 3, "quantum": 8}, "rollouts=100"),
        ({"rollouts": 96, "steps": 3, "quantum": 8, "low": 4}, "low=4"),
    ],
)
def test_a_horizon_that_cannot_be_spent_says_why(arguments, text):
    with pytest.raises(BudgetError, match=text):
        Horizon(**{"low": 0, **arguments})


def test_a_step_that_leaves_more_than_later_steps_can_spend_is_refused():
    with pytest.raises(BudgetError, match="Spend at each step what"):
        Horizon(rollouts=100, steps=4, high=50).fit(10, step=3, spent=10)  # 90 left, 50 a step
