"""How to spend a budget: pure functions `(values_PN, costs_P, budget) -> counts_P`.

Column k of `values_PN` is the value of `budget.grid()[k]` rollouts. OR-Tools' exact solver is in `cpsat.py`.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, InputError, UnsupportedError
from budgetalloc.posterior import FloatArray

Solver = Callable[..., IntArray]  # (values_PN, costs_P, budget), and domains_P= where there are quotas


def greedy(values_PN: ArrayLike, costs_P: ArrayLike | None, budget: Budget) -> IntArray:
    """Spends on the best gain per rollout (or per token) first: exact for concave values.

    Values that are not concave are replaced by their concave hull, and the answer is within one block (one segment of
    a hull) of the optimum. A threshold on all gains replaces the usual heap (CoBA-RL, arXiv 2602.03048, sec. 2.4).
    Equal gains are spread over the prompts, the first in the list first.

    Args:
        values_PN: Value of each count of `budget.grid()`, shape (P, N); fewer columns act as a lower cap.
        costs_P: Tokens of one rollout of each prompt, shape (P,), for a budget in tokens; else ignored.
        budget: With rollouts, spent exactly; with tokens, never exceeded.

    Returns:
        Counts, shape (P,).

    Raises:
        BudgetError: the budget cannot be spent.
        UnsupportedError: rollouts and tokens are both limited, or there are quotas; use `ortools`.

    >>> from budgetalloc import Budget, Point, mixed_group
    >>> budget = Budget(rollouts=16, floor=2)
    >>> greedy(mixed_group(Point([0.5, 0.1, 1.0]), budget.grid()), None, budget)
    array([5, 9, 2])
    """
    values_PN, counts_N = check_values(values_PN, budget)
    if budget.quotas is not None:
        raise UnsupportedError(f"{budget}: greedy knows no quotas. Use solver=ortools.")
    if budget.tokens is not None:
        if budget.rollouts is not None:
            raise UnsupportedError(f"{budget}: greedy spends one resource. Use solver=ortools for rollouts and tokens.")
        return _greedy_tokens(values_PN, check_costs(costs_P, len(values_PN)), counts_N, budget)
    blocks = _Blocks(values_PN, counts_N)
    left = int(budget.rollouts or 0) - len(values_PN) * int(counts_N[0])
    order = blocks.best(left // budget.quantum)
    spent = np.cumsum(blocks.size(order))
    fits = int(np.searchsorted(spent, left, side="right"))
    counts_P = counts_N[0] + blocks.counts(order[:fits])
    left -= int(spent[fits - 1]) if fits else 0
    if left:
        counts_P = _spend_rest(values_PN, counts_N, counts_P, left, budget)
    return np.asarray(counts_P)


class _Blocks:
    """Steps from one count to the next, as flat arrays in the order (step k, prompt): ties spread over the prompts."""

    def __init__(self, values_PN: FloatArray, counts_N: IntArray, costs_P: FloatArray | None = None) -> None:
        sizes_K = np.diff(counts_N)
        # Transposed, so that flattening walks over prompts first; contiguous already for values of this package.
        slopes_KP = np.diff(values_PN.T, axis=0) / sizes_K[:, None]
        self._sizes_K: IntArray = sizes_K
        self._sizes_KP: IntArray | None = None  # where some prompt has a pooled block
        if (slopes_KP[1:] > slopes_KP[:-1]).any():
            self._make_concave(slopes_KP)
        self.prompts = values_PN.shape[0]
        self.gains = (slopes_KP if costs_P is None else slopes_KP / costs_P).ravel()

    def _make_concave(self, slopes_KP: FloatArray) -> None:
        """Pools the rising slopes of each prompt, in place; slopes that rise by rounding only are levelled."""
        rises = slopes_KP[1:] > slopes_KP[:-1] + 1e-12 * (1.0 + np.abs(slopes_KP[:-1]))
        rows = np.flatnonzero(rises.any(axis=0))
        if rows.size:
            self._sizes_KP = np.repeat(self._sizes_K[:, None], slopes_KP.shape[1], axis=1)
            for row in rows:
                slopes_KP[:, row], self._sizes_KP[:, row] = _pool(slopes_KP[:, row], self._sizes_K)
        for k in range(1, len(slopes_KP)):
            np.minimum(slopes_KP[k], slopes_KP[k - 1], out=slopes_KP[k])

    def size(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rollouts in each of these blocks."""
        if self._sizes_KP is not None:
            return self._sizes_KP.ravel()[at]
        return np.asarray(self._sizes_K[at // self.prompts])

    def counts(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rollouts of each prompt in these blocks."""
        return np.bincount(at % self.prompts, weights=self.size(at), minlength=self.prompts).astype(np.int64)

    def best(self, most: int | None = None) -> NDArray[np.int64]:
        """Places of the (at least) `most` blocks of highest gain, best first, ties in flat order."""
        gains = self.gains
        if most is None or most >= gains.size:
            return np.argsort(-gains, kind="stable")
        if most <= 0 or not gains.size:
            return np.zeros(0, dtype=np.int64)
        threshold = np.partition(gains, gains.size - most)[gains.size - most]
        above = np.flatnonzero(gains > threshold)
        ties = np.flatnonzero(gains == threshold)
        return np.concatenate([above[np.argsort(-gains[above], kind="stable")], ties])


def _pool(slopes_K: FloatArray, sizes_K: IntArray) -> tuple[FloatArray, IntArray]:
    """The concave hull of one prompt's values: each pooled run becomes one block at its first step, the rest empty."""
    from scipy.optimize import isotonic_regression  # deferred: values are concave as a rule, and it is slow to import

    fit = isotonic_regression(slopes_K, weights=sizes_K, increasing=False)
    starts = fit.blocks[:-1]
    sizes = np.zeros_like(sizes_K)
    sizes[starts] = np.add.reduceat(sizes_K, starts)
    return np.asarray(fit.x, dtype=np.float64), sizes


def _spend_rest(values_PN: FloatArray, counts_N: IntArray, counts_P: IntArray, left: int, budget: Budget) -> IntArray:
    """Spends the few rollouts that no whole block fits into, by the better of two ways.

    Either groups grow, and open where that fits, one step at a time; or (where prompts are chosen) one more group opens
    and other groups give it what is missing.
    """
    quantum, low, cap = budget.quantum, budget.smallest_group, int(counts_N[-1])
    rows = np.arange(len(counts_P))

    def worth(counts: IntArray) -> FloatArray:
        return values_PN[rows, np.searchsorted(counts_N, counts)]

    def grow(counts: IntArray, left: int) -> tuple[IntArray, int]:
        """The best gain per rollout first, until nothing is left or nothing fits."""
        while left:
            size_P = np.where(counts > 0, quantum, low)
            ok = (size_P <= left) & (counts + size_P <= cap)
            gain_P = (worth(np.where(ok, counts + size_P, counts)) - worth(counts)) / size_P
            row = int(np.argmax(np.where(ok, gain_P, -np.inf)))
            if not ok[row]:
                break
            counts, left = counts + size_P * (rows == row), left - int(size_P[row])
        return counts, left

    def lend(counts: IntArray, left: int) -> IntArray | None:
        """One more group opens; the groups that lose least give what it lacks."""
        opening_P = np.where(counts == 0, values_PN[:, np.searchsorted(counts_N, low)], -np.inf)
        opened = int(np.argmax(opening_P))
        for _ in range((low - left) // quantum):
            ok = counts >= low + quantum
            loss_P = worth(counts) - worth(np.where(ok, counts - quantum, counts))
            row = int(np.argmin(np.where(ok, loss_P, np.inf)))
            if not ok[row]:
                return None
            counts = counts - quantum * (rows == row)
        return np.asarray(counts + low * (rows == opened))

    options = []
    for counts, rest in (grow(counts_P, left), (counts_P, left)):
        if rest == 0:
            options.append(counts)
        elif rest < low <= cap and not counts.all() and (lent := lend(counts, rest)) is not None:
            options.append(lent)
    return max(options, key=lambda counts: float(worth(counts).sum()))


def _greedy_tokens(values_PN: FloatArray, costs_P: FloatArray, counts_N: IntArray, budget: Budget) -> IntArray:
    tokens = float(budget.tokens or 0.0)
    start_P = np.full(len(values_PN), counts_N[0])
    left = tokens - float(start_P @ costs_P)
    if left < 0:
        raise BudgetError(
            f"{budget}: floor={budget.floor} costs {float(start_P @ costs_P):g} tokens. Use tokens="
            f"{math.ceil(start_P @ costs_P)} or more, or a lower floor."
        )
    blocks = _Blocks(values_PN, counts_N, costs_P)
    order = blocks.best()
    order = order[blocks.gains[order] > 0]  # tokens that buy nothing stay unspent
    cost = blocks.size(order) * costs_P[order % len(values_PN)]
    fits = int(np.searchsorted(np.cumsum(cost), left, side="right"))
    taken = list(order[:fits])
    left -= float(cost[:fits].sum())
    cheapest = float(cost[fits:].min(initial=np.inf))
    closed: set[int] = set()  # once a step of a prompt is skipped, its later steps are out of reach
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


def proportional(weights_P: ArrayLike, costs_P: ArrayLike | None, budget: Budget) -> IntArray:
    """Counts proportional to weights, under floor and cap, rounded by largest remainder (ties: first in the list).

    What a cap refuses goes to the others in proportion. With `floor=0`, prompts whose share falls below the smallest
    group get nothing, lightest first. CurES (arXiv 2510.01037), E3 (2505.18573) and Neyman allocation use this rule.

    Args:
        weights_P: Non-negative weights, shape (P,); all zero means equal.
        costs_P: Must be None: shares are of rollouts.
        budget: Limits rollouts.

    Raises:
        BudgetError: the budget cannot be spent. InputError: a weight is negative or not finite.

    >>> proportional([3, 2, 1], None, Budget(rollouts=10, floor=1, min_group=1))
    array([5, 3, 2])
    >>> proportional([10, 1, 1], None, Budget(rollouts=12, floor=0, cap=8))  # a share of 1 is no group
    array([8, 4, 0])
    """
    if budget.rollouts is None or budget.tokens is not None or costs_P is not None or budget.quotas is not None:
        raise UnsupportedError(f"{budget}: proportional shares out rollouts only. Use solver=ortools for the rest.")
    weights = check_weights(weights_P, budget)
    low, high = budget.smallest_group // budget.quantum, budget.largest_group // budget.quantum
    total = int(budget.rollouts) // budget.quantum
    counts_P = np.zeros(weights.size, dtype=np.int64)
    active = np.arange(weights.size)
    if budget.floor == 0:
        active = np.argsort(-weights, kind="stable")
        heaviest_K = np.arange(1, weights.size + 1)  # keep the K heaviest, so many that the lightest gets its group
        holds = weights[active] * total >= low * np.cumsum(weights[active]) * (1 - 1e-12)
        holds = (holds & (heaviest_K * low <= total)) | (heaviest_K <= -(-total // high))
        active = np.sort(active[: int(np.flatnonzero(holds)[-1]) + 1])
    counts_P[active] = largest_remainder(weights[active], total, low, high)
    return counts_P * budget.quantum


def clipped_shares(weights: FloatArray, total: int, low: int, high: int) -> FloatArray:
    """Real numbers clip(scale * weights, low, high) that add up to total; weights are not all zero."""
    positive = np.maximum(weights / weights.max(), 1e-12)
    plain = positive * (total / positive.sum())
    if low <= plain.min() and plain.max() <= high:
        return np.asarray(plain)
    # The sum of clipped shares rises with the scale: bisect in the log domain, which spans any range of weights.
    below, above = np.log(low / 2 / positive.max() + 1e-300), np.log((high + 1) / positive.min())
    for _ in range(200):
        middle = (below + above) / 2
        if np.clip(np.exp(middle) * positive, low, high).sum() < total:
            below = middle
        else:
            above = middle
    return np.asarray(np.clip(np.exp(above) * positive, low, high))


def largest_remainder(weights: FloatArray, total: int, low: int, high: int) -> IntArray:
    """Integers in [low, high] that add up to total, close to `clipped_shares`."""
    shares = clipped_shares(weights, total, low, high)
    counts = np.floor(shares + 1e-9).astype(np.int64)
    for sign in (1, -1):  # rounding leaves a few units to hand out, or (after 1e-9 upwards) to take back
        while (left := sign * (total - int(counts.sum()))) > 0:
            room = counts < high if sign > 0 else counts > low
            order = np.argsort(np.where(room, -sign * (shares - counts), np.inf), kind="stable")
            counts[order[: min(left, int(room.sum()))]] += sign
    return np.asarray(counts)


def check_weights(weights_P: ArrayLike, budget: Budget) -> FloatArray:
    """Weights as floats, all ones where all are zero; raises unless they are valid and the budget can be spent."""
    weights = np.asarray(weights_P, dtype=np.float64)
    if weights.ndim != 1 or not weights.size or not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InputError(f"weights_P={weights_P!r}: give one non-negative finite weight a prompt.")
    budget.check(weights.size)
    return weights if weights.any() else np.ones_like(weights)


def check_values(values_PN: ArrayLike, budget: Budget) -> tuple[FloatArray, IntArray]:
    """The values as floats and the counts that their columns stand for; checks that the budget can be spent."""
    values = np.asarray(values_PN, dtype=np.float64)
    if values.ndim == 2 and len(values):
        budget.check(len(values))
    counts_N = budget.grid()
    if values.ndim != 2 or not values.shape[0] or not 1 <= values.shape[1] <= counts_N.size:
        raise InputError(
            f"values_PN has shape {values.shape}: give a row for each prompt and a column for each of the "
            f"{counts_N.size} counts of budget.grid()."
        )
    if not np.isfinite(values).all():
        raise InputError(f"values_PN holds {values[~np.isfinite(values)][0]}: values must be finite.")
    counts_N = counts_N[: values.shape[1]]
    if budget.rollouts is not None:
        low, high, total = budget.smallest_group, int(counts_N[-1]), budget.rollouts
        # The last column acts as a cap: some number of groups of at most that size must add up, as in `Budget.check`.
        if len(values) * high < total or (not budget.floor and -(-total // high) * low > total):
            raise InputError(f"values_PN ends at {high} rollouts: too few columns to spend {total}.")
    return values, counts_N


def check_costs(costs_P: ArrayLike | None, prompts: int) -> FloatArray:
    """Costs as floats; raises `InputError` unless there is a positive one for each prompt."""
    if costs_P is None:
        raise InputError("costs_P=None: a budget in tokens needs the expected tokens of a rollout of each prompt.")
    costs = np.asarray(costs_P, dtype=np.float64)
    if costs.shape != (prompts,) or not (np.isfinite(costs).all() and (costs > 0).all()):
        raise InputError(f"costs_P={costs_P!r}: give a positive number of tokens for each of the {prompts} prompts.")
    return costs
