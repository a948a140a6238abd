"""Budgets of all kinds, for property tests."""

from hypothesis import assume
from hypothesis import strategies as st

from budgetalloc import Budget, BudgetError


@st.composite
def budgets(draw, prompts, floors=(0, 1, 2, 3), most=60, highest_cap=24):
    """A budget in rollouts that can be spent on this many prompts."""
    floor, quantum = draw(st.sampled_from(floors)), draw(st.sampled_from([1, 2, 3]))
    rollouts, cap = quantum * draw(st.integers(1, most)), draw(st.none() | st.integers(1, highest_cap))
    min_group = min(draw(st.integers(1, 5)), floor or 9)
    try:
        budget = Budget(rollouts, floor=floor, cap=cap, quantum=quantum, min_group=min_group)
        budget.check(prompts)
    except BudgetError:
        assume(False)
    return budget


@st.composite
def prompts_and_budgets(draw):
    """A number of prompts, and a budget for them."""
    prompts = draw(st.integers(1, 13))
    return prompts, draw(budgets(prompts))
