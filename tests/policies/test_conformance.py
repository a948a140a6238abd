"""Every method of the table keeps the rules that a policy must keep. A new method is one row there."""

import pytest

from budgetalloc import testing
from budgetalloc.policies.methods import METHODS

SLOW = (testing.survives, testing.starves_nobody)
CHECKS = [
    pytest.param(check, marks=[pytest.mark.slow] * (check in SLOW), id=check.__name__) for check in testing.CHECKS
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_keeps_the_rules(method, check):
    if check is testing.starves_nobody and method.starves:
        pytest.skip("its paper leaves prompts out for good")
    check(method.build)
