"""Rollouts and tokens limited together: a price on tokens, and a repair."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError
from budgetalloc.solvers.domains import Domains
from budgetalloc.solvers.greedy import Blocks, best_blocks, with_quotas

_PRICES = 40  # that are tried; about ten suffice
_HIGHEST = 1e15  # price of a token, above which tokens alone count
_Found = tuple[IntArray, float, float]  # counts, their value and their tokens


def by_price(
    values_PN: FloatArray,
    counts_N: IntArray,
    costs_P: FloatArray,
    budget: Budget,
    domains_P: Sequence[Hashable] | None = None,
) -> tuple[IntArray, float]:
    """Counts for a budget in rollouts and tokens, and a proven upper bound on the best value.

    At a price of a token, `greedy` spends the rollouts. The two solutions around the best price,
    one within the tokens and one above them, are found by the method of Handler and Zang (Networks,
    1980). The repair moves single rollouts from the first towards the second while the tokens last.
    The bound is that of the dual, for values of any shape.

    Raises:
        BudgetError: the quotas cannot hold, or no price brings the rollouts within the tokens.
    """
    limit, alone = float(budget.tokens or 0.0), replace(budget, tokens=None)
    rows_D, domains = [np.arange(len(costs_P))], None
    low_D: FloatArray = np.zeros(1)
    high_D: FloatArray = np.array([np.inf])
    if budget.quotas is not None:
        domains = Domains.of(domains_P, alone, int(counts_N[-1]))
        rows_D = domains.rows_D
        low_D, high_D = domains.low_D.astype(np.float64), domains.high_D.astype(np.float64)
    blocks_D = [Blocks(values_PN[rows], counts_N) for rows in rows_D]

    def worth(price: float, rows: Any = slice(None)) -> FloatArray:
        tokens_PN = np.multiply.outer(costs_P[rows], counts_N)
        return np.asarray(values_PN[rows] - price * tokens_PN)

    def solved(price: float) -> _Found:
        # a price per rollout changes no hull
        less_D = [
            blocks.less(price * costs_P[rows])
            for blocks, rows in zip(blocks_D, rows_D, strict=True)
        ]
        if domains is None:
            counts_P, _ = best_blocks(less_D[0], lambda: worth(price), counts_N, alone)
        else:
            counts_P = with_quotas(less_D, partial(worth, price), counts_N, domains)
        at_P = np.searchsorted(counts_N, counts_P)
        value = float(values_PN[np.arange(len(at_P)), at_P].sum())
        return counts_P, value, float((costs_P * counts_P).sum())

    price, above = 0.0, solved(0.0)
    within, high = above, float(np.abs(values_PN).max() / costs_P.mean()) or 1.0
    while within[2] > limit and high < _HIGHEST:
        high *= 10
        within = solved(high)
    if within[2] > limit:
        raise BudgetError(f"{budget}: no price brings its rollouts below {within[2]:g} tokens.")
    counts_P = within[0]
    if above[2] > limit:
        for _ in range(_PRICES):
            price = (above[1] - within[1]) / (above[2] - within[2])
            between = solved(price)
            gain = between[1] - price * between[2] - (within[1] - price * within[2])
            if gain <= 1e-12 * (1.0 + abs(within[1])):
                break
            within, above = (between, above) if between[2] <= limit else (within, between)
        counts_P = _repaired(within, above, costs_P, budget, rows_D)
    worth_PN = worth(price)
    price_D = _prices(worth_PN, counts_N, np.searchsorted(counts_N, counts_P), rows_D)
    profits = [
        float((worth_PN[rows] - worth * counts_N).max(axis=1).sum())
        for rows, worth in zip(rows_D, price_D.tolist(), strict=True)
    ]
    # the rollouts go to the domains with the highest prices
    left, spent = float(budget.rollouts or 0) - low_D.sum(), float(price_D @ low_D)
    for at in np.argsort(-price_D, kind="stable").tolist():
        taken = min(left, high_D[at] - low_D[at])
        spent, left = spent + price_D[at] * taken, left - taken
    return counts_P, price * limit + (sum(profits) + spent)


def _repaired(
    within: _Found, above: _Found, costs_P: FloatArray, budget: Budget, rows_D: Sequence[IntArray]
) -> IntArray:
    """Single rollouts move from the counts within the tokens towards those above, in pairs of one
    domain that cost more tokens, the most expensive first. Groups neither open nor close."""
    counts_P, left = within[0].copy(), float(budget.tokens or 0.0) - within[2]
    moves_P = (above[0] - counts_P) // budget.quantum
    equal_steps = bool(budget.fewest) or budget.smallest_group == budget.quantum
    moves_P[~(equal_steps | (np.minimum(above[0], counts_P) > 0))] = 0
    pairs = []
    for rows in rows_D:
        ups = np.repeat(rows, np.maximum(moves_P[rows], 0))
        downs = np.repeat(rows, np.maximum(-moves_P[rows], 0))
        ups = ups[np.argsort(-costs_P[ups], kind="stable")]
        downs = downs[np.argsort(costs_P[downs], kind="stable")]
        few = min(len(ups), len(downs))
        pairs.append(np.column_stack([ups[:few], downs[:few]]))
    pair_K2 = np.concatenate(pairs)
    more_K = budget.quantum * (costs_P[pair_K2[:, 0]] - costs_P[pair_K2[:, 1]])
    for at in np.argsort(-more_K, kind="stable").tolist():
        if 0 < more_K[at] <= left:
            up, down = pair_K2[at]
            counts_P[up] += budget.quantum
            counts_P[down] -= budget.quantum
            left -= more_K[at]
    return counts_P


def _prices(
    worth_PN: FloatArray, counts_N: IntArray, at_P: IntArray, rows_D: Sequence[IntArray]
) -> FloatArray:
    """The price of a rollout at which the next one of each domain gains nothing, shape (D,)."""
    next_P, rows_P = np.minimum(at_P + 1, len(counts_N) - 1), np.arange(len(at_P))
    sizes_P = np.maximum(counts_N[next_P] - counts_N[at_P], 1)
    gain_P = (worth_PN[rows_P, next_P] - worth_PN[rows_P, at_P]) / sizes_P
    gain_P[next_P == at_P] = -np.inf
    price_D = np.array([float(gain_P[rows].max(initial=-np.inf)) for rows in rows_D])
    return np.where(np.isfinite(price_D), price_D, 0.0)
