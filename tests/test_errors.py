"""Checks of single arguments, and what an error carries."""

import pickle

import numpy as np
import pytest

from budgetalloc import Budget
from budgetalloc.errors import (
    BudgetError,
    InputError,
    StateError,
    check_choice,
    check_integer,
    check_number,
    nearest_name,
)


@pytest.mark.parametrize("value", [0, 9, 2.0, True, None, "3", float("nan")])
def test_what_is_no_integer_in_range_is_refused_by_name(value):
    with pytest.raises(InputError, match=r"group=.*use an integer from 1 to 8"):
        check_integer("group", value, 1, 8)


@pytest.mark.parametrize("value", [0, 1, 1.5, -1, np.inf, np.nan, True, None, "0.5"])
def test_what_is_no_number_in_range_is_refused_by_name(value):
    with pytest.raises(InputError, match=r"share=.*use a number in \(0, 1\)"):
        check_number("share", value, 0, 1, without=(0, 1))


def test_what_is_allowed_comes_back_plain():
    assert type(check_integer("n", np.int64(3), 1)) is int
    assert type(check_number("x", np.float32(0.5), 0, 1)) is float
    with pytest.raises(InputError, match=r"use a number in \[0, inf\)"):
        check_number("x", -1, 0, np.inf)


def test_a_choice_is_one_of_the_names():
    check_choice("scale", "none", ("none", "batch"))
    with pytest.raises(InputError, match=r"scale=3: use one of \('none', 'batch'\)"):
        check_choice("scale", 3, ("none", "batch"))


def test_nearest_names_nothing_that_is_far():
    assert nearest_name("floors", ["rollouts", "floor"]) == ", did you mean floor?"
    assert nearest_name("zzz", ["rollouts", "floor"]) == "."
    assert nearest_name(None, []) == "."


@pytest.mark.parametrize(
    ("error", "text", "argument"),
    [
        (InputError("ids_P[3]", "is empty: give a name."), "ids_P[3] is empty: give a name.", "ids_P"),
        (InputError("success='x'", "is unknown."), "success='x' is unknown.", "success"),
        (InputError("cap", "use an integer.", "\x1b[2J"), r"cap='\x1b[2J': use an integer.", "cap"),
        (BudgetError("the budget"), "the budget", "budget"),
        (StateError("the state"), "the state", "state"),
    ],
)
def test_an_error_carries_its_argument_also_to_another_process(error, text, argument):
    for each in (error, pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert (type(each), str(each), each.argument) == (type(error), text, argument)


def test_a_budget_is_refused_by_the_name_of_its_setting():
    with pytest.raises(BudgetError) as caught:
        Budget(rollouts=8, floor=-1)
    assert caught.value.argument == "floor"
