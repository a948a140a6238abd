"""What the solvers share: pure functions `(values_PN, costs_P, budget) -> counts_P`, and the checks of their arguments.

Column k of `values_PN` is the value of `budget.grid()[k]` rollouts.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import InputError

Solver = Callable[..., IntArray]
"""(values_PN, costs_P, budget), and domains_P= where there are quotas."""


def check_values(values_PN: ArrayLike, budget: Budget) -> tuple[FloatArray, IntArray]:
    """The values as floats and the counts of their columns; checks that the budget can be spent."""
    values = np.asarray(values_PN, dtype=np.float64)
    if values.ndim == 2 and len(values):
        budget.check(len(values))
    counts_N = budget.grid()
    if values.ndim != 2 or not values.shape[0] or not 1 <= values.shape[1] <= counts_N.size:
        raise InputError(
            f"values_PN has shape {values.shape}: give a row for each prompt and a column for each of the "
            f"{counts_N.size} counts of budget.grid()."
        )
    if not np.isfinite(values).all():
        raise InputError(f"values_PN holds {values[~np.isfinite(values)][0]}: values must be finite.")
    counts_N = counts_N[: values.shape[1]]
    if budget.rollouts is not None:
        low, high, total = budget.smallest_group, int(counts_N[-1]), budget.rollouts
        # The last column is a cap: some number of groups of at most that size must add up, as in `Budget.check`.
        if len(values) * high < total or (not budget.floor and -(-total // high) * low > total):
            raise InputError(f"values_PN ends at {high} rollouts: too few columns to spend {total}.")
    return values, counts_N


def check_costs(costs_P: ArrayLike | None, prompts: int) -> FloatArray:
    """Costs as floats; raises `InputError` unless there is a positive one for each prompt."""
    if costs_P is None:
        raise InputError("costs_P=None: a budget in tokens needs the expected tokens of a rollout of each prompt.")
    costs = np.asarray(costs_P, dtype=np.float64)
    if costs.shape != (prompts,) or not (np.isfinite(costs).all() and (costs > 0).all()):
        raise InputError(f"costs_P={costs_P!r}: give a positive number of tokens for each of the {prompts} prompts.")
    return costs
