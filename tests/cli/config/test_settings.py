"""The sections of a file of settings as values of their own."""

import inspect

import pytest

import budgetalloc as ba
from budgetalloc import values
from budgetalloc.cli.config.settings import NAMED, Paced, PacingSettings, PolicySettings, keywords
from budgetalloc.errors import InputError


def test_the_named_functions_are_all_there_are():
    public = {name for name, x in vars(values).items() if inspect.isfunction(x) and x.__module__ == values.__name__}
    assert set(NAMED["value"]) == {name for name in public if not name.startswith("_")}
    policy = PolicySettings.of("knapsack", value="hit", solver="ortools").build()
    assert policy.allocate([1, 2], ba.Budget(8)).sum() == 8


def test_after_the_plan_the_budget_holds_again():
    policy = Paced(**vars(PolicySettings.of("uniform").build()), plan=(4,))
    assert policy.allocate(["a"], ba.Budget(9)).tolist() == [4]
    policy.observe(["a"], [1.0])
    assert policy.allocate(["a"], ba.Budget(9)).tolist() == [9]


def test_a_constant_pace_has_no_parts():
    with pytest.raises(InputError, match="constant has none"):
        PacingSettings("constant", 8, 2, parts=((1, 1.0),)).plan()


def test_functions_of_the_user_are_no_keywords_of_a_file():
    assert "domain_of" not in keywords("sec")
    assert "predict" not in keywords("gate")
    assert keywords("gate")["group"] == (int, 8)


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(InputError, match=r"policy 'pod' is unknown, did you mean pods\?"):
        PolicySettings.of("pod")


def test_the_plan_of_a_constant_pace_is_exact_though_it_does_not_divide():
    plan = PacingSettings("constant", rollouts=100, steps=7, low=4, quantum=4).plan()
    assert sum(plan) == 100
    assert set(plan) == {12, 16}
