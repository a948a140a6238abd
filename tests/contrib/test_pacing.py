"""How the budget moves over the horizon: exact totals, and a price that keeps an average."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.contrib.pacing import DualPrice, Horizon, constant, phases
from budgetalloc.errors import BudgetError


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


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 50), min_size=1, max_size=100), st.floats(0.01, 1), st.floats(0.1, 20))
def test_the_mean_use_exceeds_the_target_by_the_change_of_the_price(used_S, rate, target):
    """The identity of the docstring, and its bound where the price was held at 0: then less was used."""
    dual = DualPrice(price=1.0, rate=rate, most=1e9)
    prices = []
    for used in used_S:
        dual = dual.after(used, target)
        prices.append(dual.price)
    excess = np.mean(used_S) / target - 1
    bound = (dual.price - 1.0) / (rate * len(used_S))
    assert excess <= bound + 1e-9 * (1 + abs(bound))
    if min(prices) > 0:
        assert excess == pytest.approx(bound, abs=1e-9)


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


def test_a_policy_follows_its_plan_and_then_the_budget():
    policy = replace(ba.uniform(), plan=(4,))
    assert policy.allocate(["a"], ba.Budget(9)).tolist() == [4]
    policy.observe(["a"], [1.0])
    assert policy.allocate(["a"], ba.Budget(9)).tolist() == [9]
