"""Budgets: what is refused, and that the value each refusal suggests really holds."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import Budget, BudgetallocError, BudgetError

LIMITS = settings(max_examples=300, deadline=None)


def suggestions(error: BudgetError) -> list[dict[str, int]]:
    """The settings that an error's "Use ..." sentence offers, each as the keyword arguments to change."""
    advice = str(error).rsplit("Use ", 1)[1]
    advice = re.sub(r"=(\d+) or (\d+)", r"=\1 or rollouts=\2", advice)
    rows = []
    for part in re.split(r" or |, (?!or )", advice.replace(", or ", " or ")):
        if values := re.findall(r"(\w+)=(\d+)", part):
            rows.append({name: int(value) for name, value in values})
    return rows


def refusal(build: Callable[[], object]) -> BudgetError | None:
    try:
        build()
    except BudgetError as error:
        return error
    return None


def reason(error: BudgetError) -> str:
    return next(x for x in ("not a multiple", "a group has at least", "the smallest group has") if x in str(error))


def test_defaults():
    budget = Budget(rollouts=16)
    assert (budget.tokens, budget.floor, budget.cap, budget.quantum, budget.min_group) == (None, None, None, 1, None)
    assert (budget.fewest, Budget(rollouts=16, min_group=4).fewest, Budget(rollouts=16, floor=0).fewest) == (2, 4, 0)
    assert (budget.smallest_group, budget.largest_group) == (2, 16)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (Budget(rollouts=8), [2, 3, 4, 5, 6, 7, 8]),
        (Budget(rollouts=8, floor=0), [0, 2, 3, 4, 5, 6, 7, 8]),
        (Budget(rollouts=8, floor=0, min_group=1, cap=3), [0, 1, 2, 3]),
        (Budget(rollouts=64, floor=3, quantum=4, cap=14), [4, 8, 12]),
        (Budget(rollouts=16, floor=0, quantum=4), [0, 4, 8, 12, 16]),
        (Budget(rollouts=None, tokens=10.0, cap=4), [2, 3, 4]),
    ],
)
def test_grid(budget, expected):
    assert budget.grid().tolist() == expected
    assert budget.grid(limit=4).tolist() == [x for x in expected if x <= 4]


@pytest.mark.parametrize(
    ("settings_", "shown"),
    [
        ({"rollouts": 0}, "rollouts=0"),
        ({"rollouts": 2.5}, "rollouts=2.5"),
        ({"rollouts": True}, "rollouts=True"),
        ({"rollouts": 8, "floor": -1}, "floor=-1"),
        ({"rollouts": 8, "quantum": None}, "quantum=None"),
        ({"rollouts": 100, "quantum": 8}, "100 is not a multiple of 8. Use rollouts=96 or 104."),
        ({"rollouts": 8, "cap": 0}, "cap=0"),
        ({"rollouts": 8, "quantum": 0}, "quantum=0"),
        ({"rollouts": 8, "min_group": 0}, "min_group=0"),
        ({"rollouts": None}, "rollouts=None"),
        ({"rollouts": 8, "tokens": 0}, "tokens=0"),
        ({"rollouts": 8, "tokens": float("nan")}, "tokens=nan"),
        ({"rollouts": 8, "tokens": float("inf")}, "tokens=inf"),
        ({"rollouts": None, "tokens": 100}, "cap=None"),
        ({"rollouts": 8, "quotas": {"a": (5, 4)}}, "quotas={'a': (5, 4)}): give 0 <= fewest <= most"),
        ({"rollouts": 8, "quotas": [("a", (5, 6))]}, "quotas=[('a', (5, 6))]): give a mapping"),
    ],
)
def test_a_refusal_names_the_argument_and_shows_the_value(settings_, shown):
    with pytest.raises(BudgetError, match=re.escape(shown)) as caught:
        Budget(**settings_)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, BudgetallocError)


def test_a_grid_that_would_not_fit_into_memory_is_refused():
    with pytest.raises(BudgetError, match="counts up to 1000000000 are too many to list"):
        Budget(10**9, min_group=1).grid()
    assert Budget(10**9, min_group=1).grid(limit=3).tolist() == [2, 3]


@LIMITS
@given(
    settings_=st.fixed_dictionaries(
        {
            "rollouts": st.integers(1, 60),
            "floor": st.integers(0, 6),
            "cap": st.none() | st.integers(1, 12),
            "quantum": st.integers(1, 8),
            "min_group": st.integers(1, 5),
        }
    ),
    prompts=st.integers(1, 8),
)
def test_every_suggestion_holds(settings_, prompts):
    """A refused budget with one suggested change is no longer refused for the same reason, and `check` accepts it."""
    if error := refusal(lambda: Budget(**settings_)):
        assert suggestions(error)
        for change in suggestions(error):
            other = refusal(lambda change=change: Budget(**{**settings_, **change}))
            # A second contradiction, which the first had hidden, may show.
            assert other is None or reason(other) != reason(error)
        return
    budget = Budget(**settings_)
    if error := refusal(lambda: budget.check(prompts)):
        assert str(error).startswith(repr(budget))
        assert suggestions(error)
        for change in suggestions(error):
            Budget(**{**settings_, **change}).check(prompts)


@LIMITS
@given(
    st.integers(1, 24), st.integers(0, 4), st.none() | st.integers(1, 8), st.integers(1, 3), st.integers(1, 4),
    st.integers(1, 5),
)  # fmt: skip
def test_check_refuses_exactly_what_cannot_be_spent(rollouts, floor, cap, quantum, min_group, prompts):
    try:
        budget = Budget(rollouts=rollouts, floor=floor, cap=cap, quantum=quantum, min_group=min_group)
    except BudgetError:
        return
    if can_be_spent(budget, prompts):
        budget.check(prompts)
    else:
        with pytest.raises(BudgetError):
            budget.check(prompts)


def can_be_spent(budget: Budget, prompts: int) -> bool:
    """By enumeration of reachable totals, without the arithmetic of `check`."""
    reachable = {0}
    for _ in range(prompts):
        reachable = {total + int(n) for total in reachable for n in budget.grid()}
    return budget.rollouts in reachable


def test_groups_that_do_not_fit_are_answered_with_a_smaller_group_first():
    with pytest.raises(BudgetError, match=r"groups of 4 to 6 rollouts .* Use min_group=3 or rollouts=6 or 8"):
        Budget(rollouts=7, floor=0, min_group=4, cap=6).check(4)
