"""Prompts in shuffled epochs: the least visited first, in random order."""

from collections.abc import Callable

import numpy as np

from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer
from budgetalloc.policies.interface import View
from budgetalloc.policies.ranking import falling, ranked

__all__ = ["COLUMNS", "count_visits", "least_visited_first"]

COLUMNS = {"visits": 0.0}
"""The memory's column."""


def count_visits(memory: Memory, visit: Visit) -> None:
    """The memory's update rule: one more visit of each prompt."""
    memory.columns["visits"][visit.at_V] += 1


def least_visited_first(group: int) -> Callable[[View], IntArray]:
    """The rule that gives `group` rollouts each to the least visited prompts, in random order.

    >>> from budgetalloc import BetaEstimator, Budget, Policy
    >>> policy = Policy("epochs", least_visited_first(1), BetaEstimator(), memory=Memory(COLUMNS, count_visits))
    >>> for _ in range(3):
    ...     counts_P = policy.allocate(["a", "b", "c", "d"], Budget(rollouts=2, floor=0, min_group=1))
    ...     print(counts_P)
    ...     policy.observe([x for x, n in zip("abcd", counts_P) if n], [0, 0])
    [1 1 0 0]
    [0 0 1 1]
    [0 1 1 0]
    """
    check_integer("group", group, 1)

    def decide(view: View) -> IntArray:
        return ranked(falling(np.argsort(view.recall["visits"], kind="stable")), group, view)

    return decide
