"""The exact solver: a multiple-choice knapsack with several resources, by OR-Tools CP-SAT (imported when called)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, InputError
from budgetalloc.posterior import FloatArray
from budgetalloc.solvers import check_costs, check_values

_UNITS = 10**9  # CP-SAT counts in integers: values become integers below this


@dataclass(frozen=True, eq=False)
class Solution:
    """Counts with what CP-SAT proved of them.

    Args:
        counts_P: Rollouts of each prompt.
        value: Their total value.
        bound: No counts that satisfy the constraints have a larger total value.
        optimal: Whether the search ended before the time limit.
    """

    counts_P: IntArray
    value: float
    bound: float
    optimal: bool


def certify(
    values_PN: ArrayLike,
    costs_P: ArrayLike | None,
    budget: Budget,
    *,
    domains_P: Sequence[Hashable] | None = None,
    quotas: Mapping[Hashable, tuple[int, int]] | None = None,
    max_prompts: int | None = None,
    time_limit: float = 10.0,
    seed: int = 0,
) -> Solution:
    """The best counts found within a time limit, and the bound that CP-SAT proved. Needs no concavity.

    Args:
        values_PN: Value of each count of `budget.grid()`, shape (P, N).
        costs_P: Expected tokens of one rollout of each prompt, shape (P,); needed where the budget limits tokens.
        budget: Rollouts are spent exactly, tokens are never exceeded; both may be limited.
        domains_P: The domain of each prompt, for `quotas`.
        quotas: Fewest and most rollouts of a domain: `{"math": (256, 512)}`. A domain without a quota is free.
        max_prompts: Most prompts with a group that is not empty.
        time_limit: Seconds.
        seed: CP-SAT's random seed. One worker is used, so that every rank and every run finds the same counts
            (unless the time limit cuts the search short).

    Raises:
        BudgetError: the constraints contradict each other, or no counts were found in time.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, floor=0)
    >>> values = mixed_group(Point([0.5, 0.1, 0.05]), budget.grid())
    >>> best = certify(values, None, budget, domains_P=["math", "code", "code"], quotas={"code": (0, 6)})
    >>> best.counts_P, best.optimal
    (array([10,  6,  0]), True)
    """
    values_PN, counts_N = check_values(values_PN, budget)
    if budget.tokens is not None:
        costs = check_costs(costs_P, len(values_PN))
        _check_floor_tokens(costs, counts_N, budget)
    from ortools.sat.python import cp_model  # deferred: importing budgetalloc must not load OR-Tools

    model = cp_model.CpModel()
    pick_PN = [[model.new_bool_var("") for _ in counts_N] for _ in values_PN]
    for row in pick_PN:
        model.add_exactly_one(row)
    rollouts_P = [cp_model.LinearExpr.weighted_sum(row, counts_N.tolist()) for row in pick_PN]
    if budget.rollouts is not None:
        model.add(sum(rollouts_P) == int(budget.rollouts))
    if budget.tokens is not None:
        scale = 10**6 / max(float(budget.tokens), 1.0)
        # Rounded up, so that the true tokens never exceed the budget.
        price_P = np.ceil(costs * scale - 1e-9).astype(np.int64).tolist()
        model.add(cp_model.LinearExpr.weighted_sum(rollouts_P, price_P) <= int(float(budget.tokens) * scale))
    for domain, (fewest, most) in _check_quotas(domains_P, quotas, len(values_PN)).items():
        inside = [r for r, d in zip(rollouts_P, domains_P or (), strict=True) if d == domain]
        model.add_linear_constraint(sum(inside), fewest, most)
    if max_prompts is not None:
        if counts_N[0] > 0:
            raise BudgetError(f"max_prompts={max_prompts} with floor={budget.floor}: use floor=0 to leave prompts out.")
        model.add(sum(row[0].negated() for row in pick_PN) <= max_prompts)

    unit = float(np.abs(values_PN).max()) / _UNITS or 1.0
    scaled_PN = np.rint(values_PN / unit).astype(np.int64)
    worth_P = [cp_model.LinearExpr.weighted_sum(row, v.tolist()) for row, v in zip(pick_PN, scaled_PN, strict=True)]
    model.maximize(sum(worth_P))
    search = cp_model.CpSolver()
    search.parameters.max_time_in_seconds = float(time_limit)
    search.parameters.num_workers = 1
    search.parameters.random_seed = seed
    search.parameters.relative_gap_limit = 1e-9  # below it, only the rounding of values to integers is left
    status = search.solve(model)
    if status == cp_model.INFEASIBLE:
        raise BudgetError(_why_infeasible(budget, quotas, max_prompts))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise BudgetError(f"{budget}: CP-SAT found no counts within time_limit={time_limit:g} s. Allow more time.")
    chosen = np.array([[search.boolean_value(x) for x in row] for row in pick_PN]).argmax(axis=1)
    value = float(values_PN[np.arange(len(chosen)), chosen].sum())
    bound = (search.best_objective_bound + 0.5 * len(values_PN)) * unit  # each value was rounded by half a unit at most
    return Solution(counts_N[chosen], value, max(bound, value), status == cp_model.OPTIMAL)


def ortools(values_PN: ArrayLike, costs_P: ArrayLike | None, budget: Budget, **constraints: object) -> IntArray:
    """`certify` as a solver: its counts alone, with the same arguments.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, tokens=2000, floor=2)
    >>> ortools(mixed_group(Point([0.5, 0.1]), budget.grid()), [100, 200], budget)
    array([12,  4])
    """
    return certify(values_PN, costs_P, budget, **constraints).counts_P  # type: ignore[arg-type]


def _check_floor_tokens(costs_P: FloatArray, counts_N: IntArray, budget: Budget) -> None:
    least = float(costs_P.sum() * counts_N[0])
    if budget.rollouts is not None:
        least = max(least, float(costs_P.min()) * budget.rollouts)
    if least > float(budget.tokens or 0.0):
        raise BudgetError(f"{budget}: its rollouts cost at least {least:g} tokens. Use tokens={least:g} or more.")


def _check_quotas(
    domains_P: Sequence[Hashable] | None, quotas: Mapping[Hashable, tuple[int, int]] | None, prompts: int
) -> Mapping[Hashable, tuple[int, int]]:
    if quotas is None:
        return {}
    if domains_P is None or len(domains_P) != prompts:
        given = "None" if domains_P is None else f"{len(domains_P)} entries"
        raise InputError(f"domains_P={given}: quotas need the domain of each of the {prompts} prompts.")
    for domain, (fewest, most) in quotas.items():
        if domain not in domains_P:
            raise InputError(f"quotas name {domain!r}, which is the domain of no prompt: {set(domains_P)}.")
        if not 0 <= fewest <= most:
            raise BudgetError(f"quotas[{domain!r}]=({fewest}, {most}): give 0 <= fewest <= most.")
    return quotas


def _why_infeasible(budget: Budget, quotas: Mapping[Hashable, tuple[int, int]] | None, max_prompts: int | None) -> str:
    extra = []
    if budget.rollouts is not None and quotas:
        extra.append(f"quotas ask for {sum(q[0] for q in quotas.values())} rollouts or more: lower them")
    if max_prompts is not None and budget.rollouts is not None:
        most, enough = max_prompts * budget.largest_group, -(-budget.rollouts // budget.largest_group)
        extra.append(f"max_prompts={max_prompts} allows {most} rollouts: use max_prompts={enough} or more")
    if budget.tokens is not None:
        extra.append("raise tokens")
    return f"{budget}: no counts satisfy all constraints. " + ("; ".join(extra) or "Loosen floor, cap or quantum") + "."
