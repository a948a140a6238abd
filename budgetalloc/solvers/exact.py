"""The exact solvers: a multiple-choice knapsack with several resources, by HiGHS or CP-SAT."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, check_choice, check_integer, check_number
from budgetalloc.solvers.cp_sat import by_cp_sat
from budgetalloc.solvers.domains import checked, why_not
from budgetalloc.solvers.greedy import greedy
from budgetalloc.solvers.interface import check_costs, check_domains, check_values
from budgetalloc.solvers.milp import by_highs
from budgetalloc.solvers.problem import Problem

By = Literal["highs", "ortools"]


@dataclass(frozen=True, eq=False)
class Solution:
    """Counts, and what the solver proved about them.

    Args:
        counts_P: Rollouts of each prompt.
        value: Their total value.
        bound: An upper bound on the total value of all counts that satisfy the constraints; inf without a proof of any.
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
    """The best counts found within a time limit, and the bound that was proved. Values need not be concave.

    Where `greedy` serves the budget, the counts are never worse than its.

    Args:
        values_PN: Value of each count of `budget.grid()`, shape (P, N).
        costs_P: Expected tokens of one rollout of each prompt, shape (P,); needed where the budget limits tokens.
        budget: Rollouts are spent exactly, tokens are never exceeded, quotas hold; all may be given together.
        domains_P: The domain of each prompt; needed where the budget has quotas.
        max_prompts: Most prompts with a group that is not empty.
        time_limit: Time limit of the search, in seconds.
        seed: CP-SAT's random seed. One worker is used, so that every rank and every run finds the same counts
            (unless the time limit cuts the search short). HiGHS draws nothing.
        by: "highs", HiGHS of SciPy, usually the faster, which tells tokens apart to a millionth of their limit;
            "ortools", CP-SAT of OR-Tools, which is exact, an extra: pip install 'budgetalloc[ortools]'.
            `benchmarks/README.md` compares them.

    Raises:
        BudgetError: the constraints contradict each other, or no counts were found in time. UnsupportedError: OR-Tools
            is not installed.

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
        raise BudgetError(f"max_prompts={max_prompts} with floor={budget.fewest}: use floor=0 to leave prompts out.")
    # Greedy's counts under what it serves: a start for CP-SAT, and the answer where no better is known in time.
    single = budget.tokens is None or (budget.rollouts is None and budget.quotas is None)
    one = budget if single else replace(budget, tokens=None if budget.rollouts else budget.tokens, quotas=None)
    start_P = np.searchsorted(counts_N, greedy(values_PN, costs, one, domains_P=domains))
    problem = Problem(values_PN, counts_N, budget, prices, quotas, max_prompts, float(time_limit), seed, start_P)
    chosen_P, bound, optimal = (by_highs if by == "highs" else by_cp_sat)(problem)
    if chosen_P is None and optimal:
        raise BudgetError(why_not(domains or (), budget, int(counts_N[-1]), max_prompts))
    rows = np.arange(len(values_PN))
    if not optimal and single and (max_prompts is None or np.count_nonzero(counts_N[start_P]) <= max_prompts):
        better = chosen_P is None or values_PN[rows, start_P].sum() > values_PN[rows, chosen_P].sum()
        chosen_P = start_P if better else chosen_P
    if chosen_P is None:
        raise BudgetError(
            f"{budget}: {'HiGHS' if by == 'highs' else 'CP-SAT'} found no counts within time_limit={time_limit:g} s. "
            "Allow more time."
        )
    value = float(values_PN[rows, chosen_P].sum())
    return Solution(counts_N[chosen_P], value, max(bound, value), optimal)


def highs(values_PN: ArrayLike, costs_P: ArrayLike | None, budget: Budget, **constraints: object) -> IntArray:
    """`certify` by HiGHS as a solver: its counts alone, with the same arguments.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, tokens=2000, floor=2)
    >>> highs(mixed_group(Point([0.5, 0.1]), budget.grid()), [100, 200], budget)
    array([12,  4])
    """
    return certify(values_PN, costs_P, budget, by="highs", **constraints).counts_P  # type: ignore[arg-type]


def ortools(values_PN: ArrayLike, costs_P: ArrayLike | None, budget: Budget, **constraints: object) -> IntArray:
    """`certify` by CP-SAT as a solver: its counts alone, with the same arguments.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, tokens=2000, floor=2)
    >>> ortools(mixed_group(Point([0.5, 0.1]), budget.grid()), [100, 200], budget)
    array([12,  4])
    """
    return certify(values_PN, costs_P, budget, by="ortools", **constraints).counts_P  # type: ignore[arg-type]


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
        groups = len(costs_P) if budget.fewest else -(-budget.rollouts // high)
        extra = budget.rollouts - groups * low
        counts_P = low + np.clip(extra - np.arange(groups) * (high - low), 0, high - low)
    least = float(cheapest_P[: len(counts_P)] @ counts_P)
    if least > float(budget.tokens or 0.0):
        raise BudgetError(
            f"{budget}: its rollouts cost at least {least:g} tokens. Use tokens={math.ceil(least)} or more."
        )
