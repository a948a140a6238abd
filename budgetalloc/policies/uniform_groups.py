"""The rule of uniform GRPO, which replaces a policy's own while beliefs or advantages are out of bounds."""

from dataclasses import replace

from budgetalloc.budget import Budget, IntArray
from budgetalloc.policies.adaptive import sampled
from budgetalloc.policies.interface import Decide, Rounds, View

__all__ = ["uniform_group", "uniform_groups"]


def uniform_group(size: int, budget: Budget) -> int:
    """The smallest group of `uniform_groups`: this size, within the budget's bounds.

    >>> uniform_group(8, Budget(rollouts=64, floor=0, cap=6, quantum=4))
    4
    """
    least = min(max(size, budget.smallest_group), budget.largest_group)
    return least - least % budget.quantum


def uniform_groups(size: int) -> Decide:
    """The rule of uniform GRPO: groups of this size, of prompts drawn uniformly at random.

    >>> import budgetalloc as ba
    >>> policy, budget = ba.adaptive(), ba.Budget(rollouts=8, floor=0, min_group=1)
    >>> sorted(policy.begin(range(9), budget, decide=uniform_groups(4)).request().tolist())
    [0, 0, 0, 0, 0, 0, 0, 4, 4]
    """
    alike = sampled(power=(0, 0), draw=False).decide

    def decide(view: View) -> IntArray | Rounds:
        budget = replace(view.budget, min_group=uniform_group(size, view.budget))
        return alike(replace(view, budget=budget, costs_P=None, prompt_costs_P=None))

    return decide
