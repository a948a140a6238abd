"""Knapsack RL: the chance of a mixed group times the expected gain in success, at the last visit's
mean."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc import values
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.graded_success import rescaled
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray, Point, check_counts
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_array, check_choice, check_integer, check_number
from budgetalloc.methods.marginal_gains import (
    START,
    UNIT,
    gain_per_rollout,
    mean_rollouts,
    smallest,
    spend_gains,
    token_prices,
)
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy

__all__ = ["knapsack_rl", "rollouts_to_mix"]

# Gains per rollout that rank one purpose above another, below those of `values.success_gain`.
_SOLVED, _UNKNOWN, _UNSOLVED, _NO_GAIN = (k * UNIT for k in range(2, 6))


def rollouts_to_mix(p_P: ArrayLike, confidence: float, most: int) -> IntArray:
    """The fewest rollouts whose group is mixed with this probability, 1 - p^n - (1-p)^n >=
    confidence; at most `most`.

    Knapsack RL's code leaves out the smaller term, ln(1 - confidence) / ln(max(p, 1-p)): 3.3
    instead of 5 at p = 1/2.

    >>> rollouts_to_mix([0.01, 0.05, 0.1, 0.25, 0.5, 0.0], 0.9, 256)
    array([230,  45,  22,   9,   5, 256])
    """
    check_number("confidence", confidence, 0, 1)
    check_integer("most", most, 1)
    rates = Point(check_array("p_P", p_P, "one success rate per prompt"))
    check_counts(most, len(rates))
    enough_PN = values.mixed_group(rates, np.arange(most + 1)) >= confidence
    return np.where(enough_PN.any(axis=1), enough_PN.argmax(axis=1), most).astype(np.int64)


def knapsack_rl(
    *,
    low: int = 2,
    high: int = 128,
    recent: int = 16,
    fewest: int = 8,
    confidence: float = 0.9,
    surplus: Literal["unsolved", "effective"] = "unsolved",
    seed: int = 0,
) -> Policy:
    """Shares out a batch by (1 - p^n - (1-p)^n) p (1-p)^2, p the last visit's mean (Knapsack RL,
    arXiv 2509.25849).

    Every prompt gets `low` rollouts; one with fewer than `fewest` rewards so far gets the mean
    budget of a prompt. The rest maximises the sum of values over the *effective* prompts, those
    with 0 < p < 1, up to `high` each. The value is concave, so greedy is exact. p is the mean
    reward of the last visit or, if that had fewer than `recent` rollouts, of the `recent` latest
    rewards; a visit that lies partly in this window counts with its mean. The rule has no prior and
    no forgetting: p = 0 after 16 failures is treated as certain. For graded success the value is
    multiplied by the variance of these rewards as a share of p(1-p). Prompts with equal rewards are
    not effective and count as solved, unless p = 0.

    The surplus is what the budget has beyond the rollouts that make every effective prompt mixed
    with `confidence` (`rollouts_to_mix`). With surplus="unsolved" it goes evenly to the prompts
    with p = 0, up to `high` each. With "effective" the effective prompts have no such limit. What
    remains goes, up to `high`, to effective, unsolved, unknown and solved prompts in this order,
    and then to all alike. If the budget is less than `low` for all prompts, prompts are not ranked,
    and those left out change from step to step.

    The released code differs. Its dynamic programme values "nothing extra" at 0 instead of
    Value(min_n, p). It stops with an error if all prompts are effective and easy, treats prompts
    never seen as unsolved, gives the surplus to solved prompts if none is unsolved, and compares
    the need, which includes `low`, with what is left after `low`. The paper's full text was not
    read; its rule is taken from summaries and the code.

    Args:
        low, high: N_low and N_up, 1 <= low <= high; the budget's bounds come first.
        recent: Latest rewards of p, 1 to 1,000; with 1, p is always the last visit's mean.
        fewest: Rewards from which p is used, at least 1.
        confidence: alpha, in (0, 1).
        surplus: The prompts that get the surplus.
        seed: Seeds the ties.

    >>> from budgetalloc import Budget
    >>> policy = knapsack_rl()
    >>> rewards = {"solved": [1] * 16, "unsolved": [0] * 16, "quarter": [1, 0, 0, 0] * 4, "half": [1, 0] * 8}
    >>> policy.observe([x for x in rewards for _ in range(16)], sum(rewards.values(), []))
    >>> policy.allocate([*rewards, "new"], Budget(rollouts=40))  # "quarter" and "half" can use 9 + 5
    array([ 2, 16,  8,  6,  8])
    """
    check_integer("low", low, 1)
    check_integer("high", high, low)
    check_integer("recent", recent, 1, 1000)
    check_integer("fewest", fewest, 1)
    check_number("confidence", confidence, 0, 1, without=(0, 1))
    check_choice("surplus", surplus, ("unsolved", "effective"))

    window = [f"recent_{k}" for k in range(recent)]  # the latest rewards first

    def learn(memory: Memory, visit: Visit) -> None:
        at_V, columns = visit.at_V, memory.columns
        before_VM = np.stack([columns[name][at_V] for name in window], axis=1)
        from_VM = np.arange(recent) - visit.scored_V.astype(np.int64)[:, None]
        older_VM = np.take_along_axis(before_VM, np.maximum(from_VM, 0), axis=1)
        latest_VM = np.where(from_VM < 0, visit.mean_V[:, None], older_VM)
        for name, latest_V in zip(window, latest_VM.T, strict=True):
            columns[name][at_V] = latest_V
        filled_V = np.maximum((~np.isnan(latest_VM)).sum(axis=1), 1)
        rate_V = np.where(
            visit.scored_V >= recent, visit.mean_V, np.nansum(latest_VM, axis=1) / filled_V
        )
        columns["rate"][at_V] = np.clip(rate_V, 0.0, 1.0)
        taken_V = np.minimum(visit.scored_V, filled_V)
        # assumes that what left the window had its mean
        older_V = (filled_V - taken_V) * columns["graded"][at_V]
        columns["graded"][at_V] = (taken_V * visit.graded_V / visit.scored_V + older_V) / filled_V
        columns["scored"][at_V] += visit.scored_V

    def rescale(memory: Memory, scale: float, shift: float) -> None:
        columns, one = memory.columns, np.ones(len(memory))
        columns["rate"], _, columns["graded"] = rescaled(
            columns["rate"], one - columns["rate"], columns["graded"], scale, shift
        )
        for name in window:
            columns[name] = np.clip(scale * columns[name] + shift, 0.0, 1.0)  # NaN stays

    def decide(view: View) -> IntArray:
        rate_P, known_P = np.nan_to_num(view.recall["rate"]), view.recall["scored"] >= fewest
        unsolved_P, spread_P = known_P & (rate_P == 0), _spread(rate_P, view.recall["graded"])
        effective_P = known_P & (rate_P > 0) & (rate_P < 1) & (spread_P > 0)
        pairs_P2 = np.stack([rate_P, spread_P], axis=1)[effective_P]
        pairs_K2, at_P = np.unique(pairs_P2, axis=0, return_inverse=True)  # few differ
        budget, rates, spreads, at_P = view.budget, *pairs_K2.T, at_P.ravel()
        least = smallest(low, budget)
        start_P = np.where(known_P, least, max(min(mean_rollouts(view), high), least))
        other_P = np.select([~known_P, unsolved_P], [_UNKNOWN, _UNSOLVED], _SOLVED)
        price_P = token_prices(view)[effective_P]

        def effective(counts_N: ArrayLike) -> FloatArray:
            each_PN = (
                gain_per_rollout(values.success_gain, Point(rates, spreads), counts_N)[at_P]
                / price_P[:, None]
            )
            return np.maximum(np.rint(each_PN / UNIT) * UNIT, _NO_GAIN)

        if surplus == "unsolved":
            counts_N = budget.grid(high)
            counts_N = counts_N[counts_N > least]
            need_P = rollouts_to_mix(rates, confidence, max([least, *counts_N[-1:].tolist()]))[at_P]
            steps = int(np.maximum(need_P - least, 0).sum()) // budget.quantum
            other_P[unsolved_P] = _last_gain(effective(counts_N), steps) if steps else START - UNIT

        def gain(counts_N: IntArray) -> FloatArray:
            gain_PN = np.repeat(other_P[:, None], counts_N.size, axis=1)
            gain_PN[effective_P] = effective(counts_N)
            return gain_PN

        return spend_gains(gain, start_P, high, view)

    start = {"rate": np.nan, "scored": 0.0, "graded": 0.0} | dict.fromkeys(window, np.nan)
    settings = f"low={low}, high={high}, recent={recent}, fewest={fewest}, confidence={confidence}, surplus={surplus!r}"
    name, memory = f"knapsack_rl({settings}, seed={seed})", Memory(start, learn, rescale=rescale)
    return Policy(name, decide, BetaEstimator(), seed, Needs(baseline="group"), memory=memory)


def _spread(rate_P: FloatArray, graded_P: FloatArray) -> FloatArray:
    """The variance of successes u as a share of p(1-p), from the means of u and of u(1-u); 0 where
    all are equal."""
    largest_P = rate_P * (1 - rate_P)
    share_P = 1.0 - graded_P / np.where(largest_P > 0, largest_P, 1.0)
    return np.where(share_P > EQUAL, np.minimum(share_P, 1.0), 0.0)


def _last_gain(gain_PN: FloatArray, steps: int) -> float:
    """A value just below the gain of the last of the `steps` best steps, at which the surplus
    begins."""
    return (
        float(np.partition(gain_PN, gain_PN.size - steps, axis=None)[gain_PN.size - steps]) - UNIT
    )
