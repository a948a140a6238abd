"""How the budget moves over the horizon."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.contrib.pacing import Horizon
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
@given(horizons(), st.lists(st.tuples(st.integers(1, 9), st.floats(1e-3, 1e3)), min_size=1, max_size=4))
def test_the_total_is_exact_and_every_step_within_its_bounds(horizon, parts):
    for counts in (horizon.plan(), replace(horizon, parts=parts).plan()):
        assert sum(counts) == horizon.rollouts
        assert min(counts) >= horizon.low
        assert max(counts) <= (horizon.high or horizon.rollouts)
        assert all(count % horizon.quantum == 0 for count in counts)
    assert max(horizon.plan()) - min(horizon.plan()) <= horizon.quantum


@pytest.mark.parametrize(
    ("rollouts", "parts", "plan"),
    [
        (1200, [(2, 1), (3, 2), (1, 4)], (100, 100, 200, 200, 200, 400)),  # 1200 / (2 + 6 + 4) = 100 a unit of weight
        (110, [(1, 1), (1, 2)], (10, 20, 20, 20, 20, 20)),  # the last phase goes on
        (90, [(9, 3), (1, 2)], (15,) * 6),  # the second is not reached
    ],
)
def test_phases_share_by_weight(rollouts, parts, plan):
    assert Horizon(rollouts=rollouts, steps=6, parts=parts).plan() == plan


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
        Horizon(rollouts=100, steps=4, high=50)(step=3, spent=10)  # 90 left, 50 a step


def test_a_policy_follows_its_plan_and_then_the_budget():
    policy = replace(ba.uniform(), plan=(4,))
    assert policy.allocate(["a"], ba.Budget(9)).tolist() == [4]
    policy.observe(["a"], [1.0])
    assert policy.allocate(["a"], ba.Budget(9)).tolist() == [9]
