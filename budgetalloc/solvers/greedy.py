"""The greedy solver: a threshold on the gain per rollout, exact for concave values and for small
problems."""

import math
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, UnsupportedError
from budgetalloc.solvers.domains import Domains
from budgetalloc.solvers.interface import check_costs, check_domains, check_values, largest

_MOST_WORK, _MOST_CORE = 500_000, 256  # limits of `_improve`: sums, and prompts of a large problem
_FEW = 1000  # blocks that are sorted at once
Values = Callable[[Any], FloatArray]
"""The values of the prompts at these rows, which few problems ask for."""


def greedy(
    values_PN: ArrayLike,
    costs_P: ArrayLike | None,
    budget: Budget,
    *,
    domains_P: Sequence[Hashable] | None = None,
) -> IntArray:
    """Spends on the best gain per rollout (or per token) first, which is optimal for concave
    values.

    With a budget in rollouts, the counts are optimal if the values of each prompt are concave on
    `budget.grid()`, and the steps of the grid are equal (the floor is above 0, or the smallest
    group is one quantum). They are also optimal, for values of any shape, if P * N * rollouts is at
    most 500,000. Otherwise, also with tokens, the total falls short of the optimum by less than one
    block: one segment of a prompt's concave hull, or its smallest group. With quotas, only the
    first case is exact. `highs` is exact for all problems.

    A threshold on all gains replaces the usual heap (CoBA-RL, arXiv 2602.03048, sec. 2.4). Equal
    gains are spread over the prompts, in the order of the list.

    Args:
        values_PN: Value of each count of `budget.grid()`, shape (P, N). Fewer columns act as a
            lower cap.
        costs_P: Tokens of one rollout of each prompt, shape (P,), for a budget in tokens. Ignored
            otherwise.
        budget: Rollouts are spent exactly, tokens are never exceeded, quotas hold.
        domains_P: The domain of each prompt. Required for quotas.

    Raises:
        BudgetError: the budget cannot be spent.
        UnsupportedError: rollouts and tokens are both limited, or tokens and quotas. Use `highs`.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, floor=2)
    >>> greedy(mixed_group(Point([0.5, 0.1, 1.0]), budget.grid()), None, budget)
    array([5, 9, 2])
    """
    values_PN, counts_N = check_values(values_PN, budget)
    if budget.tokens is not None:
        if budget.rollouts is not None or budget.quotas is not None:
            raise UnsupportedError(
                f"{budget}: greedy spends one resource. Use solver=highs for tokens with rollouts "
                "or with quotas."
            )
        return _greedy_tokens(values_PN, check_costs(costs_P, len(values_PN)), counts_N, budget)
    if budget.quotas is not None:
        domains = None if domains_P is None else check_domains(domains_P, len(values_PN))
        domains_D = Domains.of(domains, budget, int(counts_N[-1]))
        blocks_D = [Blocks(values_PN[rows], counts_N) for rows in domains_D.rows_D]
        return with_quotas(blocks_D, values_PN.__getitem__, counts_N, domains_D)
    return _improved(Blocks(values_PN, counts_N), lambda: values_PN, counts_N, budget)


def best_blocks(
    blocks: "Blocks", values: Callable[[], FloatArray], counts_N: IntArray, budget: Budget
) -> tuple[IntArray, float | None]:
    """Spends the rollouts on the blocks of highest gain, and the rest where no whole block fits,
    which alone asks for `values`. Also returns the gain of the first block that was not taken, or
    None if nothing was left: the counts are then optimal."""
    left = int(budget.rollouts or 0) - blocks.prompts * int(counts_N[0])
    at_K = blocks.best(left // budget.quantum)
    taken, left, first = _fitting(blocks.gains[at_K], blocks.size(at_K), left)
    counts_P = counts_N[0] + blocks.counts(at_K[taken])
    if not left:
        return counts_P, None
    counts_P = _spend_rest(values(), counts_N, counts_P, left, budget)
    return counts_P, float(blocks.gains[at_K[first]])


def _improved(
    blocks: "Blocks", values: Callable[[], FloatArray], counts_N: IntArray, budget: Budget
) -> IntArray:
    """The counts of `best_blocks`, improved if they need not be optimal."""
    counts_P, price = best_blocks(blocks, values, counts_N, budget)
    if price is None:
        return counts_P
    return _improve(values(), counts_N, counts_P, None if blocks.sizes_BP is None else price)


def _fitting(gains_K: FloatArray, sizes_K: IntArray, left: int) -> tuple[IntArray, int, int]:
    """The places of the best gains, ties in order, up to the first block that does not fit; what is
    then left, and the place of that block, or of the last one if all fit.

    Halves are set apart by the median until few blocks are left to sort.
    """
    at_K, taken = np.arange(len(gains_K)), []
    while len(at_K) > _FEW:
        median = np.partition(gains_K, len(at_K) // 2)[len(at_K) // 2]
        part = np.flatnonzero(gains_K > median)
        if not len(part):
            break
        size = int(sizes_K[part].sum())
        if size <= left:
            taken.append(at_K[part])
            left -= size
            part = np.flatnonzero(gains_K <= median)
        at_K, gains_K, sizes_K = at_K[part], gains_K[part], sizes_K[part]
    order = np.argsort(-gains_K, kind="stable")
    spent = np.cumsum(sizes_K[order])
    fits = int(np.searchsorted(spent, left, side="right"))
    taken.append(at_K[order[:fits]])
    left -= int(spent[fits - 1]) if fits else 0
    first = int(at_K[order[min(fits, len(order) - 1)]]) if len(order) else 0
    return np.concatenate(taken), left, first


def _portions(gains_K: FloatArray, sizes_K: IntArray, limit: int) -> IntArray:
    """The rollouts of each block when the best ones, ties in order, spend the limit."""
    if limit >= sizes_K.sum():
        return sizes_K
    portion_K = np.zeros_like(sizes_K)
    if limit:
        taken, left, first = _fitting(gains_K, sizes_K, limit)
        portion_K[first] = left
        portion_K[taken] = sizes_K[taken]
    return portion_K


class Blocks:
    """Steps from one count to the next, as flat arrays in the order (block k, prompt), which
    spreads ties."""

    def __init__(
        self, values_PN: FloatArray, counts_N: IntArray, costs_P: FloatArray | None = None
    ) -> None:
        sizes_B = np.diff(counts_N)
        # Transposed: equal gains of one block k are adjacent, and value functions use this memory
        # layout.
        slopes_BP = np.diff(values_PN.T, axis=0)
        slopes_BP /= sizes_B[:, None]
        self._sizes_B: IntArray = sizes_B
        self.sizes_BP: IntArray | None = None  # None if the values of all prompts are concave
        if (slopes_BP[1:] > slopes_BP[:-1]).any():
            self._make_concave(slopes_BP)
        self.prompts = values_PN.shape[0]
        self.gains = (slopes_BP if costs_P is None else slopes_BP / costs_P).ravel()

    def _make_concave(self, slopes_BP: FloatArray) -> None:
        """Pools the rising slopes of each prompt, in place. A rise by rounding error is only
        removed."""
        rises = slopes_BP[1:] > slopes_BP[:-1] + 1e-12 * (1.0 + np.abs(slopes_BP[:-1]))
        rows = np.flatnonzero(rises.any(axis=0))
        if rows.size:
            self.sizes_BP = np.repeat(self._sizes_B[:, None], slopes_BP.shape[1], axis=1)
            for row in rows:
                slopes_BP[:, row], self.sizes_BP[:, row] = _pool(slopes_BP[:, row], self._sizes_B)
        for k in range(1, len(slopes_BP)):
            np.minimum(slopes_BP[k], slopes_BP[k - 1], out=slopes_BP[k])

    def less(self, price_P: FloatArray) -> "Blocks":
        """The same blocks with gains that are lower by the price of a rollout of each prompt."""
        made = copy(self)
        made.gains = (self.gains.reshape(-1, self.prompts) - price_P).ravel()
        return made

    def size(self, at: IntArray) -> IntArray:
        """Rollouts in each of these blocks."""
        if self.sizes_BP is not None:
            return self.sizes_BP.ravel()[at]
        return np.asarray(self._sizes_B[at // self.prompts])

    def counts(self, at: IntArray) -> IntArray:
        """Rollouts of each prompt in these blocks."""
        counts_P = np.bincount(at % self.prompts, self.size(at), self.prompts)
        return counts_P.astype(np.int64)

    def best(self, most: int) -> IntArray:
        """Indices of at least the `most` blocks of highest gain, ascending."""
        gains = self.gains
        if most >= gains.size:
            return np.arange(gains.size)
        if most <= 0:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(gains >= np.partition(gains, gains.size - most)[gains.size - most])


def _pool(slopes_B: FloatArray, sizes_B: IntArray) -> tuple[FloatArray, IntArray]:
    """The concave hull of one prompt's values: each pooled run becomes one block at its first
    step."""
    from scipy.optimize import isotonic_regression  # deferred: slow to import, and rarely needed

    fit = isotonic_regression(slopes_B, weights=sizes_B, increasing=False)
    starts = fit.blocks[:-1]
    sizes = np.zeros_like(sizes_B)
    sizes[starts] = np.add.reduceat(sizes_B, starts)
    return np.asarray(fit.x, dtype=np.float64), sizes


def with_quotas(
    blocks_D: Sequence[Blocks], values: Values, counts_N: IntArray, domains: Domains
) -> IntArray:
    """Totals by domain first, then the counts of each domain.

    Each domain gets its `low`. Then the steps of the largest gain are taken, up to `high`. This is
    optimal for concave values (Ibaraki and Katoh, Resource Allocation Problems, 1988, ch. 4). For
    others, it is optimal for the concave hulls, and the nearest totals that can be spent are used.
    """
    budget, quantum = domains.budget, domains.budget.quantum
    gains, sizes, owners = [], [], []
    for at, blocks in enumerate(blocks_D):
        base = blocks.prompts * int(counts_N[0])
        low, high = int(domains.low_D[at]) - base, int(domains.high_D[at]) - base
        at_K = blocks.best(high // quantum)
        gains_K, sizes_K = blocks.gains[at_K], blocks.size(at_K)
        gains.append(gains_K)
        sizes.append(_portions(gains_K, sizes_K, high) - _portions(gains_K, sizes_K, low))
        owners.append(np.full(at_K.size, at))
    left = int(budget.rollouts or 0) - int(domains.low_D.sum())
    taken = _portions(np.concatenate(gains), np.concatenate(sizes), left)
    more_D = np.bincount(np.concatenate(owners), weights=taken, minlength=len(blocks_D))
    total_D = domains.spendable(domains.low_D + more_D)
    counts_P = np.zeros(sum(map(len, domains.rows_D)), dtype=np.int64)
    for blocks, rows, total in zip(blocks_D, domains.rows_D, total_D.tolist(), strict=True):
        if total:
            alone = replace(budget, rollouts=total, quotas=None)
            if alone.counts < len(counts_N):
                counts_P[rows] = greedy(values(rows)[:, : alone.counts], None, alone)
            else:
                counts_P[rows] = _improved(blocks, partial(values, rows), counts_N, alone)
    return counts_P


def _spend_rest(
    values_PN: FloatArray, counts_N: IntArray, counts_P: IntArray, left: int, budget: Budget
) -> IntArray:
    """Spends the rollouts into which no whole block fits: groups grow and open one step at a time,
    or one more group opens and takes the missing rollouts from others, whichever is better."""
    quantum, low, cap = budget.quantum, budget.smallest_group, int(counts_N[-1])
    at_low = int(np.searchsorted(counts_N[:-1], low))
    # Only the best prompts without rollouts can get any: one for each group that fits, and one with
    # borrowed rollouts.
    at_K = np.flatnonzero(counts_P == 0)
    opening_K = values_PN[at_K, at_low] - values_PN[at_K, 0]
    best = [largest(gain_K, left // low + 1) for gain_K in (opening_K, opening_K / low)]
    at_K = np.union1d(np.flatnonzero(counts_P), at_K[np.concatenate(best)])
    values_KN, rows = values_PN[at_K], np.arange(len(at_K))

    def worth(counts_K: IntArray) -> FloatArray:
        return values_KN[rows, np.searchsorted(counts_N, counts_K)]

    def total(counts_K: IntArray) -> float:
        worth_P = values_PN[:, 0].copy()
        worth_P[at_K] = worth(counts_K)
        return float(worth_P.sum())

    def grow(counts_K: IntArray, left: int) -> tuple[IntArray, int]:
        """The best gain per rollout first, until nothing is left or nothing fits."""
        while left:
            size_K = np.where(counts_K > 0, quantum, low)
            ok_K = (size_K <= left) & (counts_K + size_K <= cap)
            gain_K = worth(np.where(ok_K, counts_K + size_K, counts_K)) - worth(counts_K)
            row = int(np.argmax(np.where(ok_K, gain_K / size_K, -np.inf)))
            if not ok_K[row]:
                break
            counts_K, left = counts_K + size_K * (rows == row), left - int(size_K[row])
        return counts_K, left

    def borrow(counts_K: IntArray, left: int) -> IntArray | None:
        """Opens one more group. The groups that lose the least value give it the missing
        rollouts."""
        opening_K = np.where(counts_K == 0, values_KN[:, at_low] - values_KN[:, 0], -np.inf)
        opened = int(np.argmax(opening_K))
        for _ in range((low - left) // quantum):
            ok_K = counts_K >= low + quantum
            loss_K = worth(counts_K) - worth(np.where(ok_K, counts_K - quantum, counts_K))
            row = int(np.argmin(np.where(ok_K, loss_K, np.inf)))
            if not ok_K[row]:
                return None
            counts_K = counts_K - quantum * (rows == row)
        return np.asarray(counts_K + low * (rows == opened))

    options = []
    for counts_K, rest in (grow(counts_P[at_K], left), (counts_P[at_K], left)):
        option: IntArray | None = counts_K if rest == 0 else None
        if 0 < rest < low <= cap and not counts_K.all():
            option = borrow(counts_K, rest)
        if option is not None:
            options.append(option)
    counts_P = counts_P.copy()
    counts_P[at_K] = max(options, key=total)
    return counts_P


def _improve(
    values_PN: FloatArray, counts_N: IntArray, counts_P: IntArray, price: float | None
) -> IntArray:
    """Better counts with the same sum, by an exact search over as many prompts as `_MOST_WORK`
    allows.

    In a large problem these are the prompts for which another count gains most at `price`, the gain
    of the first block that was not taken (the core of a knapsack: Pisinger, European Journal of
    Operational Research, 1995). Without a price, a large problem keeps its counts.
    """

    def fits(prompts: int, rollouts: int) -> bool:
        sums = prompts * len(counts_N) * (rollouts // _unit(counts_N) + 1)
        return sums <= _MOST_WORK

    at_K = np.arange(len(counts_P))
    if not fits(len(at_K), int(counts_P.sum())):
        if price is None:
            return counts_P
        profit_PN = values_PN - price * counts_N
        now_P1 = np.searchsorted(counts_N, counts_P)[:, None]
        now_P = np.take_along_axis(profit_PN, now_P1, axis=1)[:, 0]
        np.put_along_axis(profit_PN, now_P1, -np.inf, axis=1)
        at_K = np.argsort(now_P - profit_PN.max(axis=1), kind="stable")[:_MOST_CORE]
        spent_K = np.cumsum(counts_P[at_K]).tolist()
        at_K = at_K[: sum(fits(k + 1, spent) for k, spent in enumerate(spent_K))]
    found_K = best_counts(values_PN[at_K], counts_N, int(counts_P[at_K].sum()))
    before, after = (
        float(values_PN[at_K, np.searchsorted(counts_N, counts_K)].sum())
        for counts_K in (counts_P[at_K], found_K)
    )
    counts_P = counts_P.copy()
    if after > before + 1e-12 * (1.0 + abs(before)):
        counts_P[at_K] = found_K
    return counts_P


def best_counts(values_PN: FloatArray, counts_N: IntArray, rollouts: int) -> IntArray:
    """The counts with the largest total value that sum to `rollouts`, which must be possible.
    Values need not be concave or rise.

    This is the recursion of the multiple-choice knapsack: the best value of the first prompts for
    every number of rollouts that they may spend (Kellerer, Pferschy and Pisinger, Knapsack
    Problems, 2004, sec. 11.5).

    >>> best_counts(np.array([[0.0, 0.0, 3.0], [0.0, 2.0, 2.5]]), np.array([0, 2, 3]), 5)
    array([3, 2])
    """
    steps_N, total = counts_N // _unit(counts_N), rollouts // _unit(counts_N)
    most = int(steps_N[-1])
    # best[most + s]: the largest value with which the prompts so far spend s units
    best = np.full(most + total + 1, -np.inf)
    best[most] = 0.0
    from_SN = most + np.arange(total + 1)[:, None] - steps_N
    choice_PS = np.zeros((len(values_PN), total + 1), dtype=np.int64)
    for row, values_N in enumerate(values_PN):
        sums_SN = best[from_SN] + values_N
        choice_PS[row] = sums_SN.argmax(axis=1)
        best[most:] = np.take_along_axis(sums_SN, choice_PS[row][:, None], axis=1)[:, 0]
    counts_P = np.zeros(len(values_PN), dtype=np.int64)
    for row in range(len(values_PN) - 1, -1, -1):
        chosen = choice_PS[row, total]
        counts_P[row] = counts_N[chosen]
        total -= int(steps_N[chosen])
    return counts_P


def _unit(counts_N: IntArray) -> int:
    """The largest number of rollouts of which all counts are multiples."""
    return max(int(np.gcd.reduce(counts_N)), 1)


def _greedy_tokens(
    values_PN: FloatArray, costs_P: FloatArray, counts_N: IntArray, budget: Budget
) -> IntArray:
    start_P = np.full(len(values_PN), counts_N[0])
    needed = float(start_P @ costs_P)
    left = float(budget.tokens or 0.0) - needed
    if left < 0:
        raise BudgetError(
            f"{budget}: floor={budget.fewest} costs {needed:g} tokens. Use "
            f"tokens={math.ceil(needed)} or more, or a lower floor."
        )
    blocks = Blocks(values_PN, counts_N, costs_P)
    order = np.argsort(-blocks.gains, kind="stable")
    order = order[blocks.gains[order] > 0]  # tokens without any gain stay unspent
    cost = blocks.size(order) * costs_P[order % len(values_PN)]
    fits = int(np.searchsorted(np.cumsum(cost), left, side="right"))
    taken = list(order[:fits])
    left -= float(cost[:fits].sum())
    cheapest = float(cost[fits:].min(initial=np.inf))
    closed: set[int] = set()  # prompts of which a step was skipped: their later steps cannot follow
    for at, price in zip(order[fits:].tolist(), cost[fits:].tolist(), strict=True):
        row = at % len(values_PN)
        if left < cheapest:
            break
        if price > left:
            closed.add(row)
        elif row not in closed:
            taken.append(at)
            left -= price
    return start_P + blocks.counts(np.array(taken, dtype=np.int64))
