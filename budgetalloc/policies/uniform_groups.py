"""The rule of uniform GRPO, which replaces a policy's own while beliefs or advantages are out of
bounds."""

from dataclasses import replace

from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError
from budgetalloc.policies.adaptive import sampled
from budgetalloc.policies.interface import Decide, Rounds, View

__all__ = ["budget_of_groups", "uniform_groups"]


def budget_of_groups(size: int, budget: Budget) -> Budget:
    """The budget with groups of at least this size, within its bounds. With a floor, every prompt
    has a group: itself.

    >>> budget_of_groups(8, Budget(rollouts=64, floor=0, cap=6, quantum=4)).min_group
    4
    >>> budget_of_groups(8, Budget(rollouts=64, floor=2)).smallest_group
    2
    """
    if budget.fewest:
        return budget
    least = min(max(size, budget.smallest_group), budget.largest_group)
    return replace(budget, min_group=least - least % budget.quantum)


def uniform_groups(size: int) -> Decide:
    """The rule of uniform GRPO: groups of this size, of prompts drawn uniformly at random.

    With a floor all prompts get equal counts. Groups are halved until quotas can be kept.

    >>> import budgetalloc as ba
    >>> policy, budget = ba.adaptive(), ba.Budget(rollouts=8, floor=0, min_group=1)
    >>> sorted(policy.begin(range(9), budget, decide=uniform_groups(4)).request().tolist())
    [0, 0, 0, 0, 0, 0, 0, 4, 4]
    """
    alike = sampled(power=(0, 0), draw=False).decide

    def decide(view: View) -> IntArray | Rounds:
        least = size
        while True:
            budget = budget_of_groups(least, view.budget)
            try:
                return alike(replace(view, budget=budget, costs_P=None, prompt_costs_P=None))
            except BudgetError:
                if budget.smallest_group <= view.budget.smallest_group:
                    raise
            least //= 2

    return decide
