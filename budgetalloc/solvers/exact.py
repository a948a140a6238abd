"""The exact solver: a multiple-choice knapsack with several resources, by OR-Tools CP-SAT (imported when called)."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, InputError, check_integer, check_number
from budgetalloc.solvers.base import check_costs, check_domains, check_values
from budgetalloc.solvers.greedy import greedy

_UNITS = 10**9  # CP-SAT counts in integers: values become integers below this


@dataclass(frozen=True, eq=False)
class Solution:
    """Counts, and what CP-SAT proved about them.

    Args:
        counts_P: Rollouts of each prompt.
        value: Their total value.
        bound: An upper bound on the total value of all counts that satisfy the constraints.
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
    max_prompts: int | None = None,
    time_limit: float = 10.0,
    seed: int = 0,
) -> Solution:
    """The best counts found within a time limit, and the bound that CP-SAT proved. Values need not be concave.

    Args:
        values_PN: Value of each count of `budget.grid()`, shape (P, N).
        costs_P: Expected tokens of one rollout of each prompt, shape (P,); needed where the budget limits tokens.
        budget: Rollouts are spent exactly, tokens are never exceeded, quotas hold; all may be given together.
        domains_P: The domain of each prompt; needed where the budget has quotas.
        max_prompts: Most prompts with a group that is not empty.
        time_limit: Time limit of the search, in seconds.
        seed: CP-SAT's random seed. One worker is used, so that every rank and every run finds the same counts
            (unless the time limit cuts the search short).

    Raises:
        BudgetError: the constraints contradict each other, or no counts were found in time.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, floor=0, quotas={"code": (0, 6)})
    >>> values = mixed_group(Point([0.5, 0.1, 0.05]), budget.grid())
    >>> best = certify(values, None, budget, domains_P=["math", "code", "code"])
    >>> best.counts_P, best.optimal
    (array([10,  6,  0]), True)
    """
    values_PN, counts_N = check_values(values_PN, budget)
    if max_prompts is not None:
        check_integer("max_prompts", max_prompts, 0)
    check_number("time_limit", time_limit, 0, 1e6, without=(0,))
    check_integer("seed", seed, 0, 2**31 - 1)  # CP-SAT's own bound
    domains_P = None if domains_P is None else check_domains(domains_P, len(values_PN))
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
        price_P, limit = _whole_tokens(costs, budget.tokens)
        model.add(cp_model.LinearExpr.weighted_sum(rollouts_P, price_P) <= limit)
    for domain, (fewest, most) in _check_quotas(domains_P, budget, len(values_PN)).items():
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
    # Greedy's counts as a start: optimal if only the rollouts are limited and values are concave.
    tokens = budget.tokens if budget.rollouts is None else None
    start_P = greedy(values_PN, costs_P, replace(budget, tokens=tokens, quotas=None))
    for row, count in zip(pick_PN, start_P.tolist(), strict=True):
        for x, n in zip(row, counts_N.tolist(), strict=True):
            model.add_hint(x, n == count)
    search = cp_model.CpSolver()
    search.parameters.max_time_in_seconds = float(time_limit)
    search.parameters.num_workers = 1
    search.parameters.random_seed = seed
    search.parameters.relative_gap_limit = 1e-9  # below it, only the rounding of values to integers is left
    status = search.solve(model)
    if status == cp_model.INFEASIBLE:
        raise BudgetError(_why_infeasible(budget, counts_N, domains_P or (), max_prompts))
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


def _whole_tokens(costs_P: FloatArray, tokens: float) -> tuple[list[int], int]:
    """Costs and budget as the integers that CP-SAT needs: exact for costs of up to 6 decimals, to 1e-12 of a cost.

    Costs with more decimals become multiples of 1e-12 of the budget, rounded up, so the true tokens never exceed it.

    >>> _whole_tokens(np.array([0.3, 1.8]), 9.0)
    ([3, 18], 90)
    """
    for decimals in range(7):
        scale = 10.0**decimals
        if tokens * scale < 10**12 and np.allclose(np.round(costs_P, decimals), costs_P, rtol=1e-12, atol=0.0):
            dear_P = np.minimum(costs_P, 2 * tokens + 1)  # a cost at which not even one rollout fits
            return np.rint(dear_P * scale).astype(np.int64).tolist(), int(np.floor(round(tokens * scale, 6)))
    scale = 10**12 / tokens
    return np.ceil(np.minimum(costs_P, 2 * tokens) * scale).astype(np.int64).tolist(), 10**12


def _check_floor_tokens(costs_P: FloatArray, counts_N: IntArray, budget: Budget) -> None:
    """Raises `BudgetError`, naming the fewest tokens that suffice, if even the cheapest counts cost too much."""
    low, high = int(counts_N[0]), int(counts_N[-1])
    cheapest_P = np.sort(costs_P)
    counts_P = np.full(len(costs_P), low)
    if budget.rollouts is not None:
        low = budget.smallest_group  # the fewest groups, of the cheapest prompts; the cheapest groups are full
        groups = len(costs_P) if budget.floor else -(-budget.rollouts // high)
        extra = budget.rollouts - groups * low
        counts_P = low + np.clip(extra - np.arange(groups) * (high - low), 0, high - low)
    least = float(cheapest_P[: len(counts_P)] @ counts_P)
    if least > float(budget.tokens or 0.0):
        raise BudgetError(
            f"{budget}: its rollouts cost at least {least:g} tokens. Use tokens={math.ceil(least)} or more."
        )


def _check_quotas(
    domains_P: Sequence[Hashable] | None, budget: Budget, prompts: int
) -> Mapping[Hashable, tuple[int, int]]:
    if budget.quotas is None:
        return {}
    if domains_P is None:
        raise InputError(f"domains_P=None: quotas need the domain of each of the {prompts} prompts.")
    for domain in budget.quotas:
        if domain not in domains_P:
            raise InputError(f"quotas name {domain!r}, which is the domain of no prompt: {set(domains_P)}.")
    return budget.quotas


def _why_infeasible(
    budget: Budget,
    counts_N: IntArray,
    domains_P: Sequence[Hashable],
    max_prompts: int | None,
) -> str:
    """Names each constraint that is infeasible alone, or else all constraints, because they contradict each other."""
    total, least, most = budget.rollouts, int(counts_N[0]), int(counts_N[-1])
    quotas = budget.quotas or {}
    wrong = []
    for domain, (fewest, highest) in quotas.items():
        inside = sum(d == domain for d in domains_P)
        if fewest > inside * most or highest < inside * least:
            can = (inside * least, inside * most)
            wrong.append(f"quotas[{domain!r}]=({fewest}, {highest}) cannot hold for {inside} prompts: use {can}")
    if total is not None and (asked := sum(q[0] for q in quotas.values())) > total:
        wrong.append(f"quotas ask for {asked} rollouts: use rollouts={asked}, or quotas that ask for {total}")
    if total is not None and max_prompts is not None and max_prompts * most < total:
        wrong.append(
            f"max_prompts={max_prompts} allows {max_prompts * most} rollouts: use max_prompts={-(-total // most)}"
        )
    if not wrong:
        given = {"quotas": quotas, "max_prompts": max_prompts is not None, "tokens": budget.tokens is not None}
        wrong.append(f"Loosen {', '.join([x for x, there in given.items() if there]) or 'floor, cap or quantum'}")
    return f"{budget}: no counts satisfy all constraints. {'; '.join(wrong)}."
