"""A policy whose budget moves over the run."""

import budgetalloc as ba
from budgetalloc.policies.composition import uniform
from budgetalloc.policies.pacing_policy import Paced


def test_after_the_plan_the_budget_holds_again():
    policy = Paced(**vars(uniform()), plan=(4,))
    assert policy.allocate(["a"], ba.Budget(9)).tolist() == [4]
    policy.observe(["a"], [1.0])
    assert policy.allocate(["a"], ba.Budget(9)).tolist() == [9]
