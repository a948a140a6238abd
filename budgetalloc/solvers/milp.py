"""HiGHS by SciPy's `milp` (Huangfu and Hall, 2018)."""

import math

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.budget import IntArray
from budgetalloc.solvers.problem import Answer, Problem

__all__ = ["by_highs"]

# the largest value: HiGHS stops at an absolute gap of 1e-6, and reduced costs may have an error of
# 1e-7
_SCALE = 1e3
_TOKENS = 2e5  # the largest exact limit of tokens, because HiGHS allows a count an error of 1e-6
_CUTS = 8  # searches that may end with more tokens than the limit


def by_highs(problem: Problem) -> Answer:
    """HiGHS's answer, with a binary variable for each count of each prompt.

    HiGHS resolves a limit of tokens to about 1e-6. This is not exact above 200,000 units (of the
    smallest decimal of the costs). Counts that spend more than the limit are therefore excluded,
    one solution after another. After too many, the limit is lowered by the error, and the answer
    does not count as optimal.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # deferred: slow to import
    from scipy.sparse import csr_array, eye_array, kron, vstack

    values_PN, counts_N, budget = problem.values_PN, problem.counts_N, problem.budget
    prompts, columns = values_PN.shape
    rows, low, high = (
        [kron(eye_array(prompts), np.ones((1, columns)))],
        [1.0] * prompts,
        [1.0] * prompts,
    )

    def limit(weights_PN: ArrayLike, least: float, most: float) -> None:
        rows.append(
            csr_array(np.broadcast_to(weights_PN, values_PN.shape).reshape(1, values_PN.size))
        )
        low.append(least)
        high.append(most)

    if budget.rollouts is not None:
        limit(counts_N, budget.rollouts, budget.rollouts)
    for at_P, fewest, most in problem.quotas:
        inside_P = np.zeros((prompts, 1), dtype=np.int64)
        inside_P[at_P] = 1
        limit(inside_P * counts_N, fewest, most)
    if problem.max_prompts is not None:
        limit(counts_N > 0, -math.inf, problem.max_prompts)
    if problem.prices is not None:
        price_P, most_tokens = problem.prices
        scale = min(1.0, _TOKENS / most_tokens)
        limit(np.outer(price_P, counts_N) * scale, -math.inf, (most_tokens + 0.5) * scale)
    unit = float(np.abs(values_PN).max()) / _SCALE or 1.0

    tokens_row, bound = len(low) - 1, math.inf
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
        if not _overspent(counts_N[chosen_P], problem):
            return chosen_P, bound, result.status == 0 and cuts < _CUTS
        # excludes these and larger counts
        limit(np.arange(columns) >= chosen_P[:, None], -math.inf, prompts - 1)
    return None, bound, False


def _overspent(counts_P: IntArray, problem: Problem) -> bool:
    """Whether the rollouts cost more tokens than the limit, in integers."""
    if problem.prices is None:
        return False
    price_P, limit = problem.prices
    spent: int = sum(price * count for price, count in zip(price_P, counts_P.tolist(), strict=True))
    return spent > limit
