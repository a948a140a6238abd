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
from budgetalloc.errors import InputError, check_array, check_list, short_repr

Solver = Callable[..., IntArray]
"""Takes (values_PN, costs_P, budget), and domains_P= if the budget has quotas."""


def check_values(values_PN: ArrayLike, budget: Budget) -> tuple[FloatArray, IntArray]:
    """The values as floats, and the counts of their columns. Checks that the budget can be
    spent."""
    check_budget(budget)
    what = "a row for each prompt and a column for each count of budget.grid()"
    values = check_array("values_PN", values_PN, what, copy=False)
    prompts, columns = values.shape if values.ndim == 2 else (0, 0)
    if prompts:
        budget.check(prompts)
    # the whole grid may be far longer than the table
    counts_N = budget.grid(budget.smallest_group + columns * budget.quantum)[: max(columns, 1)]
    if not prompts or counts_N.size != columns:
        give = f"give {what}, of which there are {budget.counts}."
        raise InputError("values_PN", f"has shape {values.shape}: {give}")
    if not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise InputError("values_PN", f"holds {bad}: values must be finite.")
    if budget.rollouts is not None:
        low, high, total = budget.smallest_group, int(counts_N[-1]), budget.rollouts
        # The last column is a cap. Some number of groups of at most that size must add up, as in
        # `Budget.check`.
        if prompts * high < total or (not budget.fewest and -(-total // high) * low > total):
            few = f"ends at {high} rollouts, too few to spend {total}: give more columns."
            raise InputError("values_PN", few)
    return values, counts_N


def check_costs(costs_P: ArrayLike | None, prompts: int) -> FloatArray:
    """Costs as floats. Raises `InputError` unless there is a positive cost for each prompt."""
    if costs_P is None:
        what = "a budget in tokens needs the expected tokens of a rollout of each prompt."
        raise InputError("costs_P", what, None)
    return _positive("costs_P", costs_P, prompts, np.nextafter(0, 1))


def check_group_costs(costs: Any, prompts: int) -> tuple[FloatArray, FloatArray]:
    """The costs that a user's function returned: of each prompt, once per group, and of one of its
    rollouts."""
    try:
        prompt_costs, costs_P = costs
    except (TypeError, ValueError) as error:
        what = "return two arrays, the cost of each prompt once a group and that of one rollout."
        raise InputError("costs", what, costs) from error
    return _positive("prompt costs", prompt_costs, prompts, 0.0), check_costs(costs_P, prompts)


def _positive(name: str, values_P: Any, prompts: int, least: float) -> FloatArray:
    what = f"a {'number of at least 0' if least == 0 else 'positive number'} for each of the"
    values = check_array(name, values_P, f"{what} {prompts} prompts")
    if values.shape != (prompts,) or not (np.isfinite(values) & (values >= least)).all():
        raise InputError(name, f"give {what} {prompts} prompts.", values_P)
    return values


def check_domains(domains_P: Any, prompts: int) -> list[Hashable]:
    """The domain of each prompt. Raises `InputError` unless there is a hashable one for each."""
    domains = check_list("domains_P", domains_P, f"the domain of each of the {prompts} prompts")
    if len(domains) != prompts:
        wrong = f"has {len(domains)} entries for {prompts} prompts: give one each."
        raise InputError("domains_P", wrong)
    for at, domain in enumerate(domains):
        if not isinstance(domain, Hashable):
            what = "cannot name a domain: use a str, an int or another hashable value."
            raise InputError(f"domains_P[{at}]={short_repr(domain)}", what)
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
