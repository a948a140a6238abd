"""The exact solvers: HiGHS or CP-SAT solves a multiple-choice knapsack with several resources."""

import math
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import (
    BudgetError,
    UnsupportedError,
    check_choice,
    check_integer,
    check_number,
    import_optional,
    keywords,
)
from budgetalloc.solvers.domains import checked, why_not
from budgetalloc.solvers.greedy import greedy
from budgetalloc.solvers.interface import check_costs, check_domains, check_values
from budgetalloc.solvers.lagrangian import by_price

By = Literal["highs", "ortools", "price"]
# HiGHS stops at an absolute gap of 1e-6, and reduced costs may have an error of 1e-7
_LARGEST = 1e3  # the largest value, for HiGHS
_TOKENS = 2e5  # the largest exact limit of tokens, because HiGHS allows a count an error of 1e-6
_CUTS = 8  # searches of HiGHS that may end with more tokens than the limit
_UNITS = 10**9  # CP-SAT needs integers: values are multiples of 1 / _UNITS of the largest


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


@dataclass(frozen=True, eq=False)
class _Problem:
    """One count for each prompt, under linear constraints."""

    values_PN: FloatArray
    limits: list[tuple[IntArray, int, int]]  # weights of the counts (P, N): least and most sum
    tokens: tuple[IntArray, int] | None  # of the counts (P, N), and their limit
    start_P: IntArray  # columns that need not keep the limits, as a hint
    time_limit: float
    seed: int


# The chosen columns, a bound, and whether the search was completed. A completed search without
# columns proves that no counts satisfy the constraints.
_Answer = tuple[IntArray | None, float, bool]


@keywords
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
        time_limit: Seconds of the search. Unless it ends the search, every rank and every run finds
            the same counts.
        seed: CP-SAT's random seed.
        by: "highs" is HiGHS of SciPy. It is usually faster, and resolves tokens to a millionth of
            their limit. "ortools" is CP-SAT of OR-Tools, which is exact: pip install
            'budgetalloc[ortools]'. "price" searches nothing: it is a price on tokens, for rollouts
            and tokens together (`solvers.lagrangian`), usually within 0.1 % of the bound.

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
    prompts = len(values_PN)
    domains = None if domains_P is None else check_domains(domains_P, prompts)
    costs = None
    if budget.tokens is not None:
        costs = check_costs(costs_P, prompts)
        _check_tokens(costs, counts_N, budget)
    if max_prompts is not None and counts_N[0] > 0:
        raise BudgetError(
            f"max_prompts={max_prompts} with floor={budget.fewest}: use floor=0 to leave prompts "
            "out.",
            argument="max_prompts",
        )
    limits = _limits(counts_N, prompts, domains, budget, max_prompts)
    rows, proven, start_P, valid = np.arange(prompts), math.inf, None, True
    if costs is not None and budget.rollouts is not None and max_prompts is None:
        try:
            counts_P, proven = by_price(values_PN, counts_N, costs, budget, domains)
            start_P = np.searchsorted(counts_N, counts_P)
        except BudgetError:  # no price brings the rollouts within the tokens: a search may
            by = "highs" if by == "price" else by
    if start_P is None:
        # The greedy counts, without the constraints that `greedy` does not support.
        single, one = costs is None or (budget.rollouts is None and budget.quotas is None), budget
        if not single:
            one = replace(budget, tokens=None if budget.rollouts else budget.tokens, quotas=None)
        start_P = np.searchsorted(counts_N, greedy(values_PN, costs, one, domains_P=domains))
        valid = single
        if max_prompts is not None:
            valid &= int(np.count_nonzero(counts_N[start_P])) <= max_prompts
        elif costs is None and _concave(values_PN, counts_N):
            value = float(values_PN[rows, start_P].sum())
            return Solution(counts_N[start_P], value, value, True)
        if by == "price":
            raise UnsupportedError(
                f"{budget}: by='price' is for rollouts and tokens limited together. Use "
                "by='highs'.",
                argument="by",
            )
    chosen_P, bound, optimal = None, math.inf, False
    if by != "price":
        tokens = None
        if costs is not None and budget.tokens is not None:
            price_P, limit = _whole_tokens(costs, budget.tokens)
            tokens = np.outer(price_P, counts_N), limit
        problem = _Problem(values_PN, limits, tokens, start_P, float(time_limit), seed)
        chosen_P, bound, optimal = (_by_highs if by == "highs" else _by_cp_sat)(problem)
    if chosen_P is None and optimal:
        raise BudgetError(why_not(domains or (), budget, int(counts_N[-1]), max_prompts))
    if not optimal and valid:
        found = -math.inf if chosen_P is None else values_PN[rows, chosen_P].sum()
        chosen_P = start_P if values_PN[rows, start_P].sum() > found else chosen_P
    if chosen_P is None:
        raise BudgetError(
            f"{budget}: {'HiGHS' if by == 'highs' else 'CP-SAT'} found no counts within "
            f"time_limit={time_limit:g} s. Allow more time.",
            argument="time_limit",
        )
    value = float(values_PN[rows, chosen_P].sum())
    return Solution(counts_N[chosen_P], value, max(min(bound, proven), value), optimal)


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
    """The counts of `certify` by CP-SAT, with the same arguments."""
    return certify(values_PN, costs_P, budget, by="ortools", **constraints).counts_P  # type: ignore[arg-type]


def priced(
    values_PN: ArrayLike, costs_P: ArrayLike | None, budget: Budget, **constraints: object
) -> IntArray:
    """The counts of `certify` by a price on tokens, with the same arguments."""
    return certify(values_PN, costs_P, budget, by="price", **constraints).counts_P  # type: ignore[arg-type]


def _limits(
    counts_N: IntArray,
    prompts: int,
    domains_P: Sequence[Hashable] | None,
    budget: Budget,
    max_prompts: int | None,
) -> list[tuple[IntArray, int, int]]:
    every_P1 = np.ones((prompts, 1), dtype=np.int64)
    limits = []
    if budget.rollouts is not None:
        limits.append((every_P1 * counts_N, budget.rollouts, budget.rollouts))
    if budget.quotas is not None:
        inside = checked(domains_P, budget)
        for domain, (fewest, most) in budget.quotas.items():
            inside_P = np.array([x == domain for x in inside], dtype=np.int64)
            limits.append((inside_P[:, None] * counts_N, fewest, most))
    if max_prompts is not None:
        limits.append((every_P1 * (counts_N > 0), 0, max_prompts))
    return limits


def _concave(values_PN: FloatArray, counts_N: IntArray) -> bool:
    """Whether `greedy` is optimal: steps of the counts are equal, and no gain is above the one
    before."""
    steps_N = np.diff(counts_N)
    gains_PN = np.diff(values_PN, axis=1)
    return bool((steps_N == steps_N[:1]).all() and (gains_PN[:, 1:] <= gains_PN[:, :-1]).all())


def _whole_tokens(costs_P: FloatArray, tokens: float) -> tuple[IntArray, int]:
    """Costs and budget as integers: exact for costs with up to 6 decimals, up to a relative error
    of 1e-12.

    Costs with more decimals are rounded up to multiples of 1e-12 of the budget. The true tokens
    thus never exceed it.

    >>> _whole_tokens(np.array([0.3, 1.8]), 9.0)
    (array([ 3, 18]), 90)
    """
    for decimals in range(7):
        scale = 10.0**decimals
        exact = np.allclose(np.round(costs_P, decimals), costs_P, rtol=1e-12, atol=0.0)
        if exact and tokens * scale < 10**12:
            # at this cost, not even one rollout fits
            limited_P = np.minimum(costs_P, 2 * tokens + 1)
            limit = int(np.floor(round(tokens * scale, 6)))
            return np.rint(limited_P * scale).astype(np.int64), limit
    scale = 10**12 / tokens
    return np.ceil(np.minimum(costs_P, 2 * tokens) * scale).astype(np.int64), 10**12


def _check_tokens(costs_P: FloatArray, counts_N: IntArray, budget: Budget) -> None:
    """Raises `BudgetError` with the fewest tokens that suffice, if even the cheapest counts cost
    too much."""
    low, high = int(counts_N[0]), int(counts_N[-1])
    counts_P = np.full(len(costs_P), low)
    if budget.rollouts is not None:
        # as few groups as possible, of the cheapest prompts, the cheapest of them full
        low = budget.smallest_group
        groups = len(costs_P) if budget.fewest else -(-budget.rollouts // high)
        extra = budget.rollouts - groups * low
        counts_P = low + np.clip(extra - np.arange(groups) * (high - low), 0, high - low)
    least = float(np.sort(costs_P)[: len(counts_P)] @ counts_P)
    if least > float(budget.tokens or 0.0):
        raise BudgetError(
            f"{budget}: its rollouts cost at least {least:g} tokens. Use tokens={math.ceil(least)} "
            "or more."
        )


def _by_highs(problem: _Problem) -> _Answer:
    """The answer of HiGHS (Huangfu and Hall, 2018), with a binary variable for each count of each
    prompt.

    HiGHS resolves a limit of tokens to about 1e-6. This is not exact above 200,000 units (of the
    smallest decimal of the costs). Counts that spend more than the limit are therefore excluded,
    one solution after another. After too many, the limit is lowered by the error, and the answer
    does not count as optimal.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # deferred: slow to import
    from scipy.sparse import csr_array, eye_array, kron, vstack

    values_PN = problem.values_PN
    limits: list[tuple[NDArray[Any], float, float]] = list(problem.limits)
    prompts, columns = values_PN.shape
    if problem.tokens is not None:
        tokens_PN, most_tokens = problem.tokens
        scale = min(1.0, _TOKENS / most_tokens)
        limits.append((tokens_PN * scale, -math.inf, (most_tokens + 0.5) * scale))
    rows = [kron(eye_array(prompts), np.ones((1, columns)))]
    rows += [csr_array(weights_PN.reshape(1, -1)) for weights_PN, _, _ in limits]
    low = [1.0] * prompts + [least for _, least, _ in limits]
    high = [1.0] * prompts + [most for _, _, most in limits]
    tokens_row, unit = len(low) - 1, float(np.abs(values_PN).max()) / _LARGEST or 1.0
    bound = math.inf
    for cuts in range(_CUTS + 1):
        if cuts == _CUTS:
            high[tokens_row] *= 1 - 5e-6
        result = milp(
            -values_PN.ravel() / unit,
            integrality=np.ones(values_PN.size),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(vstack(rows, format="csr"), low, high),
            options={"time_limit": problem.time_limit, "mip_rel_gap": 1e-9},
        )
        if result.mip_dual_bound is not None and cuts < _CUTS:
            bound = (1e-7 * prompts - float(result.mip_dual_bound)) * unit
        if result.x is None:
            return None, bound, result.status != 1 and cuts < _CUTS
        chosen_P = result.x.reshape(values_PN.shape).argmax(axis=1)
        if problem.tokens is None or _spent(tokens_PN, chosen_P) <= most_tokens:
            return chosen_P, bound, result.status == 0 and cuts < _CUTS
        # excludes these and larger counts
        rows.append(csr_array((np.arange(columns) >= chosen_P[:, None]).reshape(1, -1)))
        low.append(-math.inf)
        high.append(prompts - 1)
    return None, bound, False


def _spent(tokens_PN: IntArray, chosen_P: IntArray) -> int:
    """The tokens of these columns, which may exceed 64 bits."""
    return sum(tokens_PN[np.arange(len(chosen_P)), chosen_P].tolist())


def _by_cp_sat(problem: _Problem) -> _Answer:
    """The answer of CP-SAT, by one worker. Raises `UnsupportedError` if OR-Tools is not
    installed."""
    instead = " Or use HiGHS, which is always installed: solver=ba.highs, certify(by='highs')."
    cp_model = import_optional("ortools.sat.python.cp_model", "CP-SAT", "ortools", instead)
    values_PN, end = problem.values_PN, time.monotonic() + problem.time_limit
    model, picks = cp_model.CpModel(), []
    for row_N in values_PN:
        picked = [model.new_bool_var("") for _ in row_N]
        model.add_exactly_one(picked)
        picks += picked
        if time.monotonic() > end:  # a large model takes longer than the search may
            return None, math.inf, False
    limits = list(problem.limits)
    if problem.tokens is not None:
        limits.append((problem.tokens[0], 0, problem.tokens[1]))
    for weights_PN, least, most in limits:
        total = cp_model.LinearExpr.weighted_sum(picks, weights_PN.ravel().tolist())
        model.add_linear_constraint(total, least, most)
    unit = float(np.abs(values_PN).max()) / _UNITS or 1.0
    scaled_PN = np.rint(values_PN / unit).astype(np.int64)
    model.maximize(cp_model.LinearExpr.weighted_sum(picks, scaled_PN.ravel().tolist()))
    started_PN = np.arange(values_PN.shape[1]) == problem.start_P[:, None]
    for pick, started in zip(picks, started_PN.ravel().tolist(), strict=True):
        model.add_hint(pick, started)
    search = cp_model.CpSolver()
    search.parameters.max_time_in_seconds = max(end - time.monotonic(), 0.0)
    search.parameters.num_workers = 1
    search.parameters.random_seed = problem.seed
    search.parameters.relative_gap_limit = 1e-9  # the rounding of values to integers
    status = search.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, math.inf, status == cp_model.INFEASIBLE
    picked_PN = np.array([search.boolean_value(x) for x in picks]).reshape(values_PN.shape)
    # each value was rounded by at most half a unit
    bound = (search.best_objective_bound + 0.5 * len(values_PN)) * unit
    return picked_PN.argmax(axis=1), bound, status == cp_model.OPTIMAL
