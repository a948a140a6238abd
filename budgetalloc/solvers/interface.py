"""Solvers are pure functions `(values_PN, costs_P, budget) -> counts_P`. This module checks their
arguments.

Column k of `values_PN` is the value of `budget.grid()[k]` rollouts.
"""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray, check_budget
from budgetalloc.errors import InputError, check_array, check_list, shown

__all__ = ["Solver", "check_costs", "check_domains", "check_group_costs", "check_values", "largest"]

Solver = Callable[..., IntArray]
"""Takes (values_PN, costs_P, budget), and domains_P= if the budget has quotas."""


def check_values(values_PN: ArrayLike, budget: Budget) -> tuple[FloatArray, IntArray]:
    """The values as floats, and the counts of their columns. Checks that the budget can be
    spent."""
    check_budget(budget)
    what = "a row for each prompt and a column for each count of budget.grid()"
    values = check_array("values_PN", values_PN, what, copy=False)
    if values.ndim == 2 and len(values):
        budget.check(len(values))
    # the whole grid may be far longer than the table
    columns = values.shape[1] if values.ndim == 2 else 0
    counts_N = budget.grid(budget.smallest_group + columns * budget.quantum)
    if values.ndim != 2 or not values.shape[0] or not 1 <= values.shape[1] <= counts_N.size:
        raise InputError(
            f"values_PN has shape {values.shape}: give a row for each prompt and a column for each "
            "of the "
            f"{budget.counts} counts of budget.grid()."
        )
    if not np.isfinite(values).all():
        raise InputError(
            f"values_PN holds {values[~np.isfinite(values)][0]}: values must be finite."
        )
    counts_N = counts_N[: values.shape[1]]
    if budget.rollouts is not None:
        low, high, total = budget.smallest_group, int(counts_N[-1]), budget.rollouts
        # The last column is a cap. Some number of groups of at most that size must add up, as in
        # `Budget.check`.
        if len(values) * high < total or (not budget.fewest and -(-total // high) * low > total):
            raise InputError(
                f"values_PN ends at {high} rollouts, too few to spend {total}: give more columns."
            )
    return values, counts_N


def check_costs(costs_P: ArrayLike | None, prompts: int) -> FloatArray:
    """Costs as floats. Raises `InputError` unless there is a positive cost for each prompt."""
    if costs_P is None:
        raise InputError(
            "costs_P=None: a budget in tokens needs the expected tokens of a rollout of each "
            "prompt."
        )
    costs = check_array(
        "costs_P", costs_P, f"a positive number of tokens for each of the {prompts} prompts"
    )
    if costs.shape != (prompts,) or not (np.isfinite(costs).all() and (costs > 0).all()):
        raise InputError(
            f"costs_P={shown(costs_P)}: give a positive number of tokens for each of {prompts} "
            "prompts."
        )
    return costs


def check_group_costs(costs: Any, prompts: int) -> tuple[FloatArray, FloatArray]:
    """The costs that a user's function returned: of each prompt, once per group, and of one of its
    rollouts."""
    try:
        prompt_costs, costs_P = costs
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The costs are {shown(costs)}: return two arrays, the cost of each prompt once a "
            "group and that of one "
            "rollout."
        ) from error
    once = check_array(
        "prompt costs", prompt_costs, f"a number of at least 0 for each of the {prompts} prompts"
    )
    if once.shape != (prompts,) or not (np.isfinite(once) & (once >= 0)).all():
        raise InputError(
            f"The prompt costs are {shown(prompt_costs)}: give a number of at least 0 for each "
            "prompt."
        )
    return once, check_costs(costs_P, prompts)


def check_domains(domains_P: Any, prompts: int) -> list[Hashable]:
    """The domain of each prompt. Raises `InputError` unless there is a hashable one for each."""
    domains = check_list("domains_P", domains_P, f"the domain of each of the {prompts} prompts")
    if len(domains) != prompts:
        raise InputError(
            f"domains_P has {len(domains)} entries for {prompts} prompts: give one each."
        )
    for at, domain in enumerate(domains):
        try:
            hash(domain)
        except TypeError as error:
            raise InputError(
                f"domains_P[{at}]={shown(domain)} cannot name a domain: use a str, an int or "
                "another hashable value."
            ) from error
    return domains


def largest(values_P: FloatArray, most: int) -> IntArray:
    """Indices of the `most` largest values, ascending. Of equal values, the first are taken.

    >>> largest(np.array([0.1, 0.3, 0.2, 0.2]), 2)
    array([1, 2])
    """
    if not 0 < most < len(values_P):
        return np.arange(min(most, len(values_P)))
    least = np.partition(values_P, len(values_P) - most)[len(values_P) - most]
    above = np.flatnonzero(values_P > least)
    return np.sort(np.append(above, np.flatnonzero(values_P == least)[: most - len(above)]))
