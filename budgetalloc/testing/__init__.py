"""Conformance checks for allocation policies, as plain functions for your own tests.

    import pytest
    from budgetalloc import testing
    from my_policy import mine                       # mine(seed=0) returns a Policy

    @pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
    def test_mine(check):
        check(mine)

Each check builds policies by `build(seed=...)`, runs steps with simulated rewards, and raises `AssertionError` with the
budget and the seed that broke the rule. All seeds are fixed. A check therefore gives the same result every time.

There are also three worlds with known success rates for `ba.simulate`, and logs of runs in them for tests of log
readers:

    *_, last = simulate(mine(), testing.three_kinds(), 64, 30, prompts=8)
    assert last["mixed_rollouts"] > 0.34             # uniform: a third of 1 - 2 / 2**8
    ledger = testing.log_of(testing.turning(), steps=40)
"""

from budgetalloc.testing.known_worlds import Known as Known
from budgetalloc.testing.known_worlds import log_of as log_of
from budgetalloc.testing.known_worlds import rising as rising
from budgetalloc.testing.known_worlds import three_kinds as three_kinds
from budgetalloc.testing.known_worlds import turning as turning
from budgetalloc.testing.rules import CHECKS as CHECKS
from budgetalloc.testing.rules import IDS as IDS
from budgetalloc.testing.rules import Build as Build
from budgetalloc.testing.rules import budgets as budgets
from budgetalloc.testing.rules import decides_the_same_again as decides_the_same_again
from budgetalloc.testing.rules import decides_the_same_over_a_pool as decides_the_same_over_a_pool
from budgetalloc.testing.rules import does_not_depend_on_order as does_not_depend_on_order
from budgetalloc.testing.rules import goes_on_from_its_state as goes_on_from_its_state
from budgetalloc.testing.rules import keeps_to_tokens_or_says_so as keeps_to_tokens_or_says_so
from budgetalloc.testing.rules import play as play
from budgetalloc.testing.rules import same_state as same_state
from budgetalloc.testing.rules import serves_every_history as serves_every_history
from budgetalloc.testing.rules import spends_exactly as spends_exactly
from budgetalloc.testing.rules import starves_nobody as starves_nobody
from budgetalloc.testing.rules import survives as survives
from budgetalloc.testing.rules import trained as trained
