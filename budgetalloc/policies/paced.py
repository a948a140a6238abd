"""A policy whose budget moves over the run."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from budgetalloc.budget import Budget
from budgetalloc.policies.base import Policy
from budgetalloc.policies.step import Step


@dataclass(frozen=True, eq=False, repr=False)
class Paced(Policy):
    """A policy whose k-th step spends `plan[k]` rollouts, whatever the budget says; after the plan, the budget.

    >>> from budgetalloc.policies.compose import uniform
    >>> Paced(**vars(uniform()), plan=(4,)).allocate(["a", "b"], Budget(rollouts=16))
    array([2, 2])
    """

    plan: tuple[int, ...] = ()

    def begin(self, ids_P: Iterable[Any], budget: Budget, *rest: Any, **named: Any) -> Step:
        at = self.estimator.step
        budget = replace(budget, rollouts=self.plan[at]) if at < len(self.plan) else budget
        return super().begin(ids_P, budget, *rest, **named)
