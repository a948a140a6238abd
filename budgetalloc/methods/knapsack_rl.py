"""Knapsack RL: the chance of a mixed group times the expected gain in success, at the last visit's
mean."""

from typing import Annotated, Literal

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray, Point
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.budget import IntArray
from budgetalloc.methods.gains import (
    START,
    UNIT,
    gain_per_rollout,
    smallest,
    spend_gains,
    token_prices,
)
from budgetalloc.methods.table import Between, Count, Inside, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.values import mixed_group, success_gain

# Gains per rollout that rank one purpose above another, below those of `values.success_gain`.
_SOLVED, _UNKNOWN, _UNSOLVED, _NO_GAIN = (k * UNIT for k in range(2, 6))


def rollouts_to_mix(rates: Point, confidence: float, most: int) -> IntArray:
    """The fewest rollouts whose group is mixed with this probability, 1 - p^n - (1-p)^n >=
    confidence; at most `most`.

    Knapsack RL's code leaves out the smaller term, ln(1 - confidence) / ln(max(p, 1-p)): 3.3
    instead of 5 at p = 1/2.

    >>> rollouts_to_mix(Point([0.01, 0.05, 0.1, 0.25, 0.5, 0.0]), 0.9, 256)
    array([230,  45,  22,   9,   5, 256])
    """
    enough_PN = mixed_group(rates, np.arange(most + 1)) >= confidence
    return np.where(enough_PN.any(axis=1), enough_PN.argmax(axis=1), most).astype(np.int64)


@method("across prompts", "released code")
def knapsack_rl(
    *,
    low: Count = 2,
    high: Annotated[int, Between("low")] = 128,
    recent: Annotated[int, Between(1, 1000)] = 16,
    fewest: Count = 8,
    confidence: Inside = 0.9,
    surplus: Literal["unsolved", "effective"] = "unsolved",
    seed: int = 0,
) -> Policy:
    """Gives a batch's rollouts to the prompts that are likely to both succeed and fail in a group
    and can still improve. It is meant for batches in which many groups of equal size would have
    equal rewards, and no gradient.

    Formula: greedy on (1 - p^n - (1-p)^n) p (1-p)^2, p the mean of the last visit (of the last 16
    rewards).

    Source: Knapsack RL (arXiv 2509.25849). Compared with the released code and with summaries. The
    full text was not read.

    Every prompt gets `low` rollouts; one with fewer than `fewest` rewards so far gets the mean
    budget of a prompt. The rest goes to the *effective* prompts, 0 < p < 1. A visit that lies
    partly in the window counts with its mean. For graded success the value is multiplied by the
    variance of these rewards as a share of p(1-p).

    The surplus goes to unsolved prompts. It is what the budget has beyond the rollouts that make
    every effective prompt mixed with `confidence`. What remains goes to effective, unsolved,
    unknown and solved prompts in this order, and then to all alike. The code stops with an error if
    all prompts are effective and easy, treats prompts never seen as unsolved, and counts `low`
    twice in the need.

    Args:
        low, high: N_low and N_up; the budget's bounds come first.
        recent, fewest: Latest rewards of p, and rewards from which p is used.
        confidence: alpha.
        surplus: The prompts that get the surplus.

    >>> from budgetalloc import Budget
    >>> policy, ids = knapsack_rl(), ["solved", "unsolved", "quarter", "half", "new"]
    >>> rewards = [1] * 16 + [0] * 16 + [1, 0, 0, 0] * 4 + [1, 0] * 8
    >>> policy.observe([x for x in ids[:4] for _ in range(16)], rewards)
    >>> policy.allocate(ids, Budget(rollouts=40))  # "quarter" and "half" can use 9 + 5
    array([ 2, 16,  8,  6,  8])
    """

    def learn(memory: Memory, seen: ByPrompt) -> None:
        at_P, columns = memory.rows(seen.ids_P), memory.columns
        from_PM = np.arange(recent) - seen.n_P.astype(np.int64)[:, None]
        older_PM = np.take_along_axis(columns["recent"][at_P], np.maximum(from_PM, 0), axis=1)
        latest_PM = np.where(from_PM < 0, seen.mean_P[:, None], older_PM)
        columns["recent"][at_P] = latest_PM
        filled_P = np.maximum((~np.isnan(latest_PM)).sum(axis=1), 1)
        rate_P = np.nansum(latest_PM, axis=1) / filled_P
        rate_P = np.where(seen.n_P >= recent, seen.mean_P, rate_P)
        columns["rate"][at_P] = np.clip(rate_P, 0.0, 1.0)
        taken_P = np.minimum(seen.n_P, filled_P)
        # assumes that what left the window had its mean
        older_P = (filled_P - taken_P) * columns["graded"][at_P]
        columns["graded"][at_P] = (taken_P * seen.graded_P / seen.n_P + older_P) / filled_P
        columns["scored"][at_P] += seen.n_P

    def decide(view: View) -> IntArray:
        budget, recall = view.budget, view.recall
        rate_P, known_P = np.nan_to_num(recall["rate"]), recall["scored"] >= fewest
        spread_P = _spread(rate_P, recall["graded"])
        unsolved_P = known_P & (rate_P == 0)
        effective_P = known_P & (rate_P > 0) & (rate_P < 1) & (spread_P > 0)
        pairs_P2 = np.stack([rate_P, spread_P], axis=1)[effective_P]
        pairs_K2, at_P = np.unique(pairs_P2, axis=0, return_inverse=True)  # few differ
        rates, at_P = Point(*pairs_K2.T), at_P.ravel()
        least = smallest(low, budget)
        start_P = np.where(known_P, least, max(min(_mean_rollouts(view), high), least))
        other_P = np.select([~known_P, unsolved_P], [_UNKNOWN, _UNSOLVED], _SOLVED)
        price_P = token_prices(view)[effective_P]

        def effective(counts_N: IntArray) -> FloatArray:
            each_PN = gain_per_rollout(success_gain, rates, counts_N)[at_P] / price_P[:, None]
            return np.maximum(np.rint(each_PN / UNIT) * UNIT, _NO_GAIN)

        if surplus == "unsolved":
            counts_N = budget.grid(high)
            counts_N = counts_N[counts_N > least]
            most = max([least, *counts_N[-1:].tolist()])
            need_P = rollouts_to_mix(Point(rates.p_P), confidence, most)[at_P]
            steps = int(np.maximum(need_P - least, 0).sum()) // budget.quantum
            other_P[unsolved_P] = START - UNIT
            if steps:  # just below the gain of the last of the best `steps`, where surplus begins
                gains, last = effective(counts_N), np.size(at_P) * counts_N.size - steps
                other_P[unsolved_P] = float(np.partition(gains, last, axis=None)[last]) - UNIT

        def gain(counts_N: IntArray) -> FloatArray:
            gain_PN = np.repeat(other_P[:, None], counts_N.size, axis=1)
            gain_PN[effective_P] = effective(counts_N)
            return gain_PN

        return spend_gains(gain, start_P, high, view)

    means = {"rate": np.nan, "scored": 0.0, "graded": 0.0}
    memory = Memory({**means, "recent": [np.nan] * recent}, learn)
    return policy(decide, memory=memory)


def _mean_rollouts(view: View) -> int:
    """The budget's mean rollouts per prompt, rounded down to its quantum."""
    budget, rollouts = view.budget, view.budget.rollouts
    each = rollouts // len(view.ids_P) if rollouts is not None else budget.largest_group
    if budget.tokens is not None and view.costs_P is not None:
        each = min(each, int(budget.tokens // view.costs_P.sum()))
    return min(each // budget.quantum * budget.quantum, budget.largest_group)


def _spread(rate_P: FloatArray, graded_P: FloatArray) -> FloatArray:
    """The variance of successes u as a share of p(1-p), from the means of u and of u(1-u); 0 where
    all are equal."""
    largest_P = rate_P * (1 - rate_P)
    share_P = 1.0 - graded_P / np.where(largest_P > 0, largest_P, 1.0)
    return np.where(share_P > EQUAL, np.minimum(share_P, 1.0), 0.0)
