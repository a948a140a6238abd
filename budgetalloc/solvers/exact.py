"""The exact solvers: HiGHS or CP-SAT solves a multiple-choice knapsack with several resources. With
its bound, a price on tokens solves large ones nearly exactly, and at once."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import (
    BudgetError,
    UnsupportedError,
    check_choice,
    check_integer,
    check_number,
)
from budgetalloc.solvers.cp_sat import by_cp_sat
from budgetalloc.solvers.domains import checked, why_not
from budgetalloc.solvers.greedy import greedy
from budgetalloc.solvers.interface import check_costs, check_domains, check_values
from budgetalloc.solvers.lagrangian import by_price
from budgetalloc.solvers.milp import by_highs
from budgetalloc.solvers.problem import Problem

__all__ = ["By", "Solution", "certify", "highs", "ortools", "priced"]

By = Literal["highs", "ortools", "price"]


@dataclass(frozen=True, eq=False)
class Solution:
    """Counts, and what the solver proved about them.

    Args:
        counts_P: Rollouts of each prompt, shape (P,).
        value: Their total value.
        bound: A proven upper bound on the total value under the constraints; inf if nothing was
            proven.
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
    by: By = "highs",
) -> Solution:
    """The best counts found within a time limit, and a proven bound. Values need not be concave.

    The counts are never worse than those of `greedy`, if `greedy` supports the constraints, and
    under rollouts and tokens than those of a price on tokens. Where `greedy` is proven optimal,
    nothing is searched.

    Args:
        values_PN: Value of each count of `budget.grid()`, shape (P, N).
        costs_P: Expected tokens of one rollout of each prompt, shape (P,). Required if the budget
            limits tokens.
        budget: Rollouts are spent exactly, tokens are never exceeded, quotas hold. All may be given
            together.
        domains_P: The domain of each prompt. Required for quotas.
        max_prompts: Most prompts that may get rollouts.
        time_limit: Time limit of the search, in seconds.
        seed: CP-SAT's random seed. CP-SAT uses one worker. Every rank and every run then finds the
            same counts, unless the time limit ends the search. HiGHS is deterministic.
        by: "highs" is HiGHS of SciPy. It is usually faster, and resolves tokens to a millionth of
            their limit. "ortools" is CP-SAT of OR-Tools, which is exact: pip install
            'budgetalloc[ortools]'. `benchmarks/README.md` compares the two. "price" searches
            nothing: it is a price on tokens, for rollouts and tokens together
            (`solvers.lagrangian`), within 0.1 % of the bound as a rule.

    Raises:
        BudgetError: the constraints contradict each other, or no counts were found in time.
        UnsupportedError: OR-Tools is not installed.

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
    check_choice("by", by, get_args(By))
    domains = None if domains_P is None else check_domains(domains_P, len(values_PN))
    costs, prices, quotas = None, None, []
    if budget.tokens is not None:
        costs = check_costs(costs_P, len(values_PN))
        _check_floor_tokens(costs, counts_N, budget)
        prices = _whole_tokens(costs, budget.tokens)
    if budget.quotas is not None:
        inside = checked(domains, budget)
        for domain, (fewest, most) in budget.quotas.items():
            quotas.append((np.flatnonzero([d == domain for d in inside]), fewest, most))
    if max_prompts is not None and counts_N[0] > 0:
        raise BudgetError(
            f"max_prompts={max_prompts} with floor={budget.fewest}: use floor=0 to leave prompts "
            "out."
        )
    rows, proven, start_P = np.arange(len(values_PN)), math.inf, None
    if costs is not None and budget.rollouts is not None and max_prompts is None:
        try:
            counts_P, proven = by_price(values_PN, counts_N, costs, budget, domains)
        except BudgetError:  # no price brings the rollouts within the tokens: a search may
            by = "highs" if by == "price" else by
        else:
            start_P = np.searchsorted(counts_N, counts_P)
    valid = start_P is not None
    if start_P is None:
        # The greedy counts, without the constraints that `greedy` does not support: a start, and
        # the fallback.
        single = budget.tokens is None or (budget.rollouts is None and budget.quotas is None)
        one = (
            budget
            if single
            else replace(budget, tokens=None if budget.rollouts else budget.tokens, quotas=None)
        )
        start_P = np.searchsorted(counts_N, greedy(values_PN, costs, one, domains_P=domains))
        if (
            single
            and max_prompts is None
            and budget.tokens is None
            and _concave(values_PN, counts_N)
        ):
            value = float(values_PN[rows, start_P].sum())
            return Solution(counts_N[start_P], value, value, True)
        if by == "price":
            raise UnsupportedError(
                f"{budget}: by='price' is for rollouts and tokens limited together. Use by='highs'."
            )
        valid = single and (
            max_prompts is None or int(np.count_nonzero(counts_N[start_P])) <= max_prompts
        )
    problem = Problem(
        values_PN, counts_N, budget, prices, quotas, max_prompts, float(time_limit), seed, start_P
    )
    search = {"highs": by_highs, "ortools": by_cp_sat}.get(by)
    chosen_P, bound, optimal = search(problem) if search else (None, math.inf, False)
    if chosen_P is None and optimal:
        raise BudgetError(why_not(domains or (), budget, int(counts_N[-1]), max_prompts))
    if not optimal and valid:
        better = (
            chosen_P is None or values_PN[rows, start_P].sum() > values_PN[rows, chosen_P].sum()
        )
        chosen_P = start_P if better else chosen_P
    bound = min(bound, proven)
    if chosen_P is None:
        raise BudgetError(
            f"{budget}: {'HiGHS' if by == 'highs' else 'CP-SAT'} found no counts within "
            f"time_limit={time_limit:g} s. "
            "Allow more time."
        )
    value = float(values_PN[rows, chosen_P].sum())
    return Solution(counts_N[chosen_P], value, max(bound, value), optimal)


def highs(
    values_PN: ArrayLike, costs_P: ArrayLike | None, budget: Budget, **constraints: object
) -> IntArray:
    """The counts of `certify` by HiGHS, with the same arguments.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, tokens=2000, floor=2)
    >>> highs(mixed_group(Point([0.5, 0.1]), budget.grid()), [100, 200], budget)
    array([12,  4])
    """
    return certify(values_PN, costs_P, budget, by="highs", **constraints).counts_P  # type: ignore[arg-type]


def ortools(
    values_PN: ArrayLike, costs_P: ArrayLike | None, budget: Budget, **constraints: object
) -> IntArray:
    """The counts of `certify` by CP-SAT, with the same arguments.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, tokens=2000, floor=2)
    >>> ortools(mixed_group(Point([0.5, 0.1]), budget.grid()), [100, 200], budget)
    array([12,  4])
    """
    return certify(values_PN, costs_P, budget, by="ortools", **constraints).counts_P  # type: ignore[arg-type]


def priced(
    values_PN: ArrayLike, costs_P: ArrayLike | None, budget: Budget, **constraints: object
) -> IntArray:
    """The counts of `certify` by a price on tokens, with the same arguments.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, tokens=2000, floor=2)
    >>> priced(mixed_group(Point([0.5, 0.1]), budget.grid()), [100, 200], budget)
    array([12,  4])
    """
    return certify(values_PN, costs_P, budget, by="price", **constraints).counts_P  # type: ignore[arg-type]


def _concave(values_PN: FloatArray, counts_N: IntArray) -> bool:
    """Whether `greedy` is optimal: steps of the counts are equal, and no gain is above the one
    before."""
    steps_N = np.diff(counts_N)
    gains_PN = np.diff(values_PN, axis=1)
    return bool((steps_N == steps_N[:1]).all() and (gains_PN[:, 1:] <= gains_PN[:, :-1]).all())


def _whole_tokens(costs_P: FloatArray, tokens: float) -> tuple[list[int], int]:
    """Costs and budget as integers: exact for costs with up to 6 decimals, up to a relative error
    of 1e-12.

    Costs with more decimals are rounded up to multiples of 1e-12 of the budget. The true tokens
    thus never exceed it.

    >>> _whole_tokens(np.array([0.3, 1.8]), 9.0)
    ([3, 18], 90)
    """
    for decimals in range(7):
        scale = 10.0**decimals
        if tokens * scale < 10**12 and np.allclose(
            np.round(costs_P, decimals), costs_P, rtol=1e-12, atol=0.0
        ):
            # at this cost, not even one rollout fits
            limited_P = np.minimum(costs_P, 2 * tokens + 1)
            return np.rint(limited_P * scale).astype(np.int64).tolist(), int(
                np.floor(round(tokens * scale, 6))
            )
    scale = 10**12 / tokens
    return np.ceil(np.minimum(costs_P, 2 * tokens) * scale).astype(np.int64).tolist(), 10**12


def _check_floor_tokens(costs_P: FloatArray, counts_N: IntArray, budget: Budget) -> None:
    """Raises `BudgetError` with the fewest tokens that suffice, if even the cheapest counts cost
    too much."""
    low, high = int(counts_N[0]), int(counts_N[-1])
    cheapest_P = np.sort(costs_P)
    counts_P = np.full(len(costs_P), low)
    if budget.rollouts is not None:
        # as few groups as possible, of the cheapest prompts, the cheapest of them full
        low = budget.smallest_group
        groups = len(costs_P) if budget.fewest else -(-budget.rollouts // high)
        extra = budget.rollouts - groups * low
        counts_P = low + np.clip(extra - np.arange(groups) * (high - low), 0, high - low)
    least = float(cheapest_P[: len(counts_P)] @ counts_P)
    if least > float(budget.tokens or 0.0):
        raise BudgetError(
            f"{budget}: its rollouts cost at least {least:g} tokens. Use tokens={math.ceil(least)} "
            "or more."
        )
