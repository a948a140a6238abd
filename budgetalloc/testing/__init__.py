"""Conformance checks for allocation policies, as plain functions for your own tests.

    import pytest
    from budgetalloc import testing
    from my_policy import mine                       # mine(seed=0) returns a Policy

    @pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
    def test_mine(check):
        check(mine)

Each check builds policies by `build(seed=...)`, runs steps with simulated rewards, and raises
`AssertionError` with the budget and the seed that broke the rule. All seeds are fixed. A check
therefore gives the same result every time.

There are also three worlds with known success rates for `ba.simulate`, and logs of runs in them for
tests of log readers:

    *_, last = simulate(mine(), testing.three_kinds(), 64, 30, prompts=8)
    assert last["informative_prompts"] > 0.05  # uniform: a third of 8 prompts, of 64 rollouts
    ledger = testing.log_of(testing.turning(), steps=40)
"""

from budgetalloc.testing.conformance import (
    CHECKS,
    play,
    same_state,
    starves_no_prompt,
    survives,
    trained,
)
from budgetalloc.testing.known_worlds import Known, log_of, rising, three_kinds, turning

__all__ = [
    "CHECKS",
    "Known",
    "log_of",
    "play",
    "rising",
    "same_state",
    "starves_no_prompt",
    "survives",
    "three_kinds",
    "trained",
    "turning",
]
